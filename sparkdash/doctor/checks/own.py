"""Checks of sparkdash itself: settings, profiles, translator, daemon, Hugging Face token.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparkdash import __version__
from sparkdash.doctor.check import CheckResult, check, fail, note, ok, unknown, warn
from sparkdash.doctor.facts import Facts, require_read
from sparkdash.settings import Settings

TOKEN = "{hf_home}/token"  # noqa: S105 - where it would be
VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
OTHERS = 0o077
SHOWN = 3
"""Number of profiles that are named."""
AGAIN = "sparkdash stop --daemon, then start it again"


@check("settings", "config.toml and SPARKDASH_* are valid.")
def settings(facts: Facts) -> Iterator[CheckResult]:
    """Report invalid settings, or those that differ from the defaults."""
    if facts.settings_problem:
        yield fail(facts.settings_problem, "Correct it; until then every check uses the defaults.")
        return
    used, defaults = facts.settings.model_dump(mode="json"), Settings().model_dump(mode="json")
    changed = [f"{name} = {value}" for name, value in used.items() if value != defaults[name]]
    yield ok(f"Valid; {', '.join(changed) or 'all are the defaults'}.")


@check("profiles", "Every profile file loads, and no rule has an error against one.", profiles=True)
def profiles(facts: Facts) -> Iterator[CheckResult]:
    """Count problems of profiles; `profiles check` names each."""
    seen = require_read(facts.profiles)
    if seen is None:
        yield unknown("The profiles were not read.")
        return
    rules = f"{seen.errors} errors and {seen.warnings} warnings by the rules"
    about = f"{seen.profiles} profiles, {seen.problems} problems, {rules}"
    if seen.problems or seen.errors:
        yield warn(
            f"{about}: files with problems are left out, and errors make a start fail.", "sparkdash profiles check"
        )
    else:
        yield ok(f"{about}.")


@check("translator", "The translator is installed if an engine lacks a protocol of clients.", profiles=True)
def translator(facts: Facts) -> Iterator[CheckResult]:
    """Check for litellm, by what is known of the engines without asking them."""
    seen = require_read(facts.profiles)
    if seen is None:
        yield unknown("The profiles were not read.")
    elif not seen.translated:
        yield ok("No profile is known to need it.")
    elif seen.translator:
        yield ok(f"Installed; {_some(seen.translated)} may need it.")
    else:
        lack = f"{_some(seen.translated)}: their engines are not known to speak both messages and responses"
        yield note(f"{lack}, and litellm is not installed.", "pip install 'sparkdash[translate]'")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


@check("daemon", "The daemon answers, is of this version, and uses these settings.")
def daemon(facts: Facts) -> Iterator[CheckResult]:
    """Compare the daemon's version and runtime with ours."""
    seen = facts.daemon
    if seen is None:
        yield unknown("The daemon was not asked.")
    elif seen.problem:
        yield note(seen.problem, "sparkdash service install, or sparkdash serve")
    elif seen.version != __version__:
        yield warn(f"The daemon at {seen.address} is {seen.version}, this is {__version__}.", AGAIN)
    elif seen.runtime != facts.settings.runtime:
        yield warn(
            f"The daemon at {seen.address} uses {seen.runtime}, and the settings say {facts.settings.runtime}.", AGAIN
        )
    else:
        yield ok(f"{seen.version} serves {seen.url} with {seen.runtime} (pid {seen.pid}).")


@check("hf-token", "A Hugging Face token for gated models is there; its value is not read.", modes=(TOKEN,))
def token(facts: Facts) -> Iterator[CheckResult]:
    """Look for the token's variable or file, and check the file's mode."""
    mode, named = facts.mode(TOKEN), [name for name in VARIABLES if name in facts.environment]
    if mode is not None and mode & OTHERS:
        yield warn(f"Others may read {facts.path(TOKEN)} (mode {mode:o}).", f"chmod 600 {facts.path(TOKEN)}")
    elif mode is not None:
        yield ok(f"There is one in {facts.path(TOKEN)}.")
    elif named:
        yield ok(f"{named[0]} is set here; the daemon needs it in its own environment.")
    else:
        yield note(f"None ({facts.path(TOKEN)}, {' or '.join(VARIABLES)}): gated models are refused.", "hf auth login")
