"""Entry point of `sparkdash` and the list of its commands."""

from __future__ import annotations

from typing import Annotated

import typer

from sparkdash import __version__
from sparkdash.cli import connect, doctor, home, hooks, keys, memory, web
from sparkdash.cli.bench import ab
from sparkdash.cli.bench import commands as bench
from sparkdash.cli.daemon import demo, serve, service
from sparkdash.cli.engines import history, incidents, logs, release, replay, requests, status, stop, use, why
from sparkdash.cli.exits import exit_codes
from sparkdash.cli.nodes import commands as nodes
from sparkdash.cli.output.screen import print_text
from sparkdash.cli.profiles import add as add_from_source
from sparkdash.cli.profiles import build, import_export, new, pull, search, sources
from sparkdash.cli.profiles import commands as profiles
from sparkdash.cli.setup import commands as setup

app = typer.Typer(
    name="sparkdash",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    serve.serve,
    status.status,
    use.use,
    why.why,
    stop.stop,
    stop.cancel,
    requests.requests,
    replay.replay,
    incidents.incidents,
    history.history,
    release.release,
    logs.logs,
    pull.pull,
    build.build,
    connect.connect,
    ab.ab,
    demo.demo,
    doctor.doctor,
    setup.setup,
    memory.memory,
    web.web,
):
    app.command()(command)
profiles.app.command("import")(import_export.import_profiles)
profiles.app.command("export")(import_export.export_profile)
profiles.app.command("new")(new.new_profile)
profiles.app.command("search")(search.search_profiles)
profiles.app.command("add")(add_from_source.add_profile)
profiles.app.add_typer(sources.app, name="sources")
app.add_typer(profiles.app, name="profiles")
app.add_typer(bench.app, name="bench")
app.add_typer(service.app, name="service")
app.add_typer(keys.app, name="keys")
app.add_typer(nodes.app, name="nodes")
app.add_typer(hooks.app, name="hooks")


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
        home.home()


def main() -> None:
    """Run the console script. Exits 0, the error's own code, 2 for wrong usage, or 130 after Ctrl-C."""
    with exit_codes():
        app(prog_name="sparkdash")
