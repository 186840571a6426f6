"""Runs in the real engine's own Python: which of the command lines on stdin does vLLM's parser take?

One JSON list of words a line (what follows `vllm serve`); one JSON string a line back: "" or what the parser says.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys

from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser


def complaint(parser: FlexibleArgumentParser, words: list[str]) -> str:
    """What the parser says against these words; "" when it takes them."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parser.parse_args(words)
    except SystemExit:
        return said.getvalue().strip().splitlines()[-1]
    return ""


if __name__ == "__main__":
    vllm = make_arg_parser(FlexibleArgumentParser())
    for line in sys.stdin:
        print(json.dumps(complaint(vllm, json.loads(line))))
