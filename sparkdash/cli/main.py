"""Entry point of `sparkdash` and the list of its commands."""

import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from sparkdash import __version__
from sparkdash.cli import (
    OPENING,
    connect,
    doctor,
    history,
    keys,
    memory,
    node_link,
    nodes,
    serve,
    service,
    setup,
    status,
    use,
)
from sparkdash.cli.bench import commands as bench
from sparkdash.cli.dashboard import exit_codes, open_dashboard
from sparkdash.cli.output import print_opening, print_text
from sparkdash.cli.profiles import build, import_export, new, pull
from sparkdash.cli.profiles import commands as profiles
from sparkdash.errors import expected


def home() -> None:
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        from sparkdash.cli.status import status

        status()
        return
    print_opening(OPENING)
    open_dashboard()


class GroupedCommands(TyperGroup):
    """Lists the commands in the help by group, and words a wrong value as the settings do."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            from pydantic import ValidationError

            if isinstance(error.__cause__, ValidationError):
                first = error.__cause__.errors()[0]
                own = first["type"] == "value_error"  # typer's own words, with the value
                error.message = expected(first) if own else f"{expected(first)}, not {first['input']!r}"
            raise

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - typer carries its own click
        widest = max(map(len, self.commands))
        room = formatter.width - 6 - widest
        for title, members in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name.ljust(widest), self.commands[name].get_short_help_str(room)) for name in members]
                )


app = typer.Typer(
    cls=GroupedCommands,
    name="sparkdash",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for add, name in (
    (import_export.import_profiles, "import"),
    (import_export.export_profile, "export"),
    (new.new_profile, "new"),
):
    profiles.app.command(name)(add)
nodes.app.command("copy")(node_link.copy)
nodes.app.command("bench")(node_link.bench)
GROUPS: dict[str, dict[str, Callable[..., None] | typer.Typer]] = {
    "Every day": {
        "use": use.use,
        "status": status.status,
        "why": status.why,
        "stop": use.stop,
        "cancel": use.cancel,
        "requests": status.requests,
        "logs": status.logs,
        "history": history.history,
    },
    "First day": {"demo": serve.demo, "setup": setup.setup, "connect": connect.connect, "launch": connect.launch},
    "Profiles": {"profiles": profiles.app, "pull": pull.pull, "build": build.build},
    "Measure": {"ab": bench.ab, "bench": bench.app},
    "Care": {
        "serve": serve.serve,
        "service": service.service,
        "doctor": doctor.doctor,
        "memory": memory.memory,
        "keys": keys.keys,
        "nodes": nodes.app,
        "uninstall": service.uninstall,
    },
}
for members in GROUPS.values():
    for name, member in members.items():
        if isinstance(member, typer.Typer):
            app.add_typer(member, name=name)
        else:
            app.command(name, cls=connect.PassingOn if member is connect.launch else None)(member)


def _version(wanted: bool) -> None:
    if wanted:
        print_text(f"sparkdash {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Terminal dashboard and hot-swap OpenAI gateway for the NVIDIA DGX Spark.

    Without a command, it opens the dashboard and starts the daemon in the background if none runs. Quitting the
    dashboard never stops serving; `sparkdash stop --daemon --all` does.

    \b
    Examples:
      sparkdash                      the dashboard
      sparkdash demo                 the whole product on a simulated box
      sparkdash use gpt-oss-120b     swap to a profile and wait until it answers
      sparkdash status --json        what runs, for scripts
    """
    if context.invoked_subcommand is None:
        home()


def main() -> None:
    """Run the console script. Exits 0, the error's own code, 2 for wrong usage, or 130 after Ctrl-C."""
    with exit_codes():
        app(prog_name="sparkdash")
