"""`sparkdash setup`: from an unpacked box to a first token, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash.cli.output import confirm, is_interactive, print_json, print_note, print_text
from sparkdash.cli.parameters import AsJson, Yes, complete_profile
from sparkdash.discovery.found import SetupStep, StepOutlook
from sparkdash.errors import SparkdashError

if TYPE_CHECKING:
    from sparkdash.discovery.propose import BoxState, StepProposal

STEPS = ", ".join(SetupStep)
MARKS = {
    StepOutlook.DONE: "done",
    StepOutlook.PROPOSED: "next",
    StepOutlook.OFFERED: "can do",
    StepOutlook.NOTHING: "-",
}


def setup(
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="PROFILE", help="Begin with this profile.", autocompletion=complete_profile),
    ] = None,
    only: Annotated[
        list[SetupStep] | None,
        typer.Option("--only", metavar="STEP", help=f"Only this step ({STEPS}); may be repeated."),
    ] = None,
    skip: Annotated[
        list[SetupStep] | None, typer.Option("--skip", metavar="STEP", help="Not this step; may be repeated.")
    ] = None,
    port: Annotated[
        list[int] | None,
        typer.Option("--port", metavar="PORT", min=1, max=65535, help="Look for a server on this port too."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the steps; change nothing.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Set this box up, from nothing to a first token.

    Looks at the box, its Hugging Face cache, servers and containers that run,
    llama-swap and Ollama, and proposes steps: attach what runs, import
    what is configured, pull a model, install the service, connect clients, ask
    for a first token. Each step is asked for and can be skipped; Ctrl-C ends the
    command. It may be given again: what is done stays done.

    \b
    Examples:
      sparkdash setup
      sparkdash setup --dry-run
      sparkdash setup --yes --model gpt-oss-20b --skip clients
      sparkdash setup --only attach --port 9000
      sparkdash setup --json | jq '.steps[] | select(.outlook == "proposed")'
    """
    from sparkdash.cli.this_box import look_at_box
    from sparkdash.discovery.propose import propose

    chosen = [step for step in SetupStep if step in (only or SetupStep) and step not in (skip or ())]
    if not chosen:
        raise typer.BadParameter(f"--only and --skip leave no step of {STEPS}")
    if not as_json:
        print_note("Looking at this box …")
    state = _with_its_name(look_at_box(model, chosen, tuple(port or ())))
    steps = propose(state, attaches=SetupStep.ATTACH in chosen)
    shown = [proposal for proposal in steps if proposal.step in chosen]
    if as_json:
        return print_json({"steps": shown, "found": state.discovered})
    print_text("\n".join(step_lines(shown)))
    if dry_run:
        return None
    if not yes and not is_interactive():
        print_note("Nothing was changed. Add --yes to take the steps marked next.")
        return None
    return _carry_out(chosen, state, tuple(port or ()), yes=yes)


def _with_its_name(state: BoxState) -> BoxState:
    """Put the profile's own name for the one that the owner named. Raises AdmissionError `model_not_found`."""
    from sparkdash.cli.local import configured_catalog
    from sparkdash.discovery.propose import attached_profiles, first_profile, taken_names

    coming = attached_profiles(state.discovered.servers, taken_names(state.profiles))
    if state.chosen is None or first_profile(state) or state.chosen in {made["profile"] for _, made in coming}:
        return state
    return replace(state, chosen=configured_catalog().find(state.chosen).name)


def step_lines(steps: Sequence[StepProposal]) -> list[str]:
    lines = []
    for number, one in enumerate(steps, 1):
        lines.append(f"{number}  {MARKS[one.outlook]:<7} {one.step.value:<12} {one.found}")
        if one.outlook in (StepOutlook.PROPOSED, StepOutlook.OFFERED):
            lines += [f"{'':24}{command}" for command in one.commands]
    return lines


def _carry_out(chosen: Sequence[SetupStep], state: BoxState, ports: tuple[int, ...], *, yes: bool) -> None:
    from sparkdash.cli.running_daemon import reload_daemon
    from sparkdash.cli.this_box import look_at_box
    from sparkdash.discovery.propose import propose

    failed: dict[SetupStep, int] = {}
    for step in chosen:
        one = next(proposal for proposal in propose(state) if proposal.step is step)
        if step is SetupStep.FIRST_TOKEN and SetupStep.MODEL in failed:
            print_note(f"\nfirst-token: not asked for, as {' and '.join(one.subjects) or 'the model'} was not fetched.")
            continue
        if not _is_wanted(one, yes=yes):
            continue
        print_note(f"\n{step.value}: {one.found}")
        code = _take(one, state, yes=yes)
        if code and step is not SetupStep.BOX:  # its exit code is the doctor's, whose findings stand above
            failed[step] = code
        if step in (SetupStep.ATTACH, SetupStep.IMPORT):
            reload_daemon()  # a later step uses the profiles just written
            state = look_at_box(state.chosen, chosen, ports)
    if failed:
        names = ", ".join(step.value for step in failed)
        print_note(f"\nNot done: {names}. Fix what is named above, then `sparkdash setup` again: the rest is kept.")
        raise typer.Exit(next(iter(failed.values())))
    print_note("\nOpen the dashboard with `sparkdash`.")


def _take(one: StepProposal, state: BoxState, *, yes: bool) -> int:
    """Take one step; return its exit code. A failure is printed, and the next step can still be taken."""
    from sparkdash.cli.output import print_error
    from sparkdash.cli.this_box import carry_out

    try:
        carry_out(one, state, yes=yes)
    except SparkdashError as error:
        print_error(error)
        return error.exit_code
    except typer.Exit as end:
        return end.exit_code
    return 0


def _is_wanted(one: StepProposal, *, yes: bool) -> bool:
    if one.outlook in (StepOutlook.DONE, StepOutlook.NOTHING):
        return False
    if yes:
        return one.outlook is StepOutlook.PROPOSED
    question = "Show each with its fix?" if one.step is SetupStep.BOX else "Do it?"
    return confirm(f"\n{one.step.value}: {one.found}. {question}", default=one.outlook is StepOutlook.PROPOSED)
