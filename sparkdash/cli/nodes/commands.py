"""`sparkdash nodes`: the group and its list of commands."""

from __future__ import annotations

import typer

from sparkdash.cli.nodes import add, bench, check, copy, node_list, remove

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def nodes() -> None:
    """Other boxes that engines run on, such as a second Spark.

    Each is reached over ssh with your own key. Nothing is installed there, no password is kept, and no port is opened.

    \b
    Examples:
      sparkdash nodes add spark2 --ssh ubuntu@192.168.177.12
      sparkdash nodes list
      sparkdash nodes copy qwen3-235b --to spark2
      sparkdash nodes check
      sparkdash nodes bench spark2
      sparkdash nodes remove spark2
    """


app.command("add")(add.add)
app.command("list")(node_list.list_nodes)
app.command("remove")(remove.remove)
app.command("copy")(copy.copy)
app.command("check")(check.check)
app.command("bench")(bench.bench)
