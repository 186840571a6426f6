"""Runs in the real engine's own Python, and answers one JSON question a line with one line `{"answer": …}`.

A list of words (what follows `vllm serve`): "" when vLLM's parser takes them, else what it says.
"table": spellings, arity and choices of each of its flags.
"""

import contextlib
import io
import json
import os
import sys

from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser


def complaint(parser: FlexibleArgumentParser, words: list[str]) -> str:
    """The parser's complaint about these words; "" when it takes them."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parser.parse_args(words)
    except SystemExit:
        return said.getvalue().strip().splitlines()[-1]
    return ""


def table(parser: FlexibleArgumentParser) -> list[dict[str, object]]:
    found = []
    for action in parser._actions:
        name = type(action).__name__
        takes = "one" if action.nargs is None else "optional" if action.nargs == "?" else "many"
        takes = "toggle" if "BooleanOptional" in name else "none" if action.nargs == 0 else takes
        takes = "append" if "Append" in name else takes
        choices = sorted(map(str, action.choices)) if action.choices else None
        found.append({"names": action.option_strings, "takes": takes, "choices": choices})
    return [one for one in found if one["names"]]


if __name__ == "__main__":
    vllm = make_arg_parser(FlexibleArgumentParser())
    for line in sys.stdin:
        words = json.loads(line)
        answer = table(vllm) if words == "table" else complaint(vllm, words)
        print(json.dumps({"answer": answer}), flush=True)
    os._exit(0)  # to take all of vLLM's modules apart again takes Python 3 s
