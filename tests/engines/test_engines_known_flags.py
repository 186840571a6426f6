"""Help texts of four programs, and what they say of a profile's flags."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkdash.domain.profile import Profile
from sparkdash.engines.flag_check import unlisted_flags
from sparkdash.engines.flag_table import KnownFlags, parse_help

Make = Callable[..., Profile]

LLAMA = """\
----- common params -----

-h,    --help, --usage                  print this and end
--version                               print the version
-c,    --ctx-size N                     how long a prompt may be; see --parallel
                                        (env: LLAMA_ARG_CTX_SIZE)
-fa,   --flash-attn [on|off|auto]       faster attention
--poll <0...100>                        how eagerly to wait
--perf, --no-perf                       measure times
--rope-scaling {none,linear,yarn}       how positions are stretched
-ngl,  --gpu-layers, --n-gpu-layers N   layers on the GPU
-lm,   --load-mode MODE                 how files are read
--draft, --draft-n, --draft-max N       the argument has been removed. use --spec-draft-n-max
--a-flag-whose-name-is-longer-than-the-column N
                                        --ctx-size is another one
"""


def _argparse() -> str:
    parser = argparse.ArgumentParser(prog="engine serve")
    parser.add_argument("model", nargs="?", help="what to serve, as --model would say")
    for name in ("host", "port", "dtype", "load-format", "tensor_parallel_size"):
        parser.add_argument(f"--{name}", help=f"sets {name}, unless --no-{name} or a config says otherwise")
    parser.add_argument("--quantization", "-q", choices=["awq", "--fp8"])
    parser.add_argument("--middleware", nargs="+", metavar="A")
    parser.add_argument("--async-scheduling", action=argparse.BooleanOptionalAction)
    parser.add_argument("--gpu-memory-utilization-of-everything-that-is-there", type=float, help="a share")
    return parser.format_help()


def _click() -> str:
    names = ["max_batch_size", "max_seq_len", "tp_size", "backend", "host", "port", "tokenizer", "log_level"]
    options: list[click.Parameter] = [click.Option([f"--{name}"], help=f"sets {name}") for name in names]
    options.append(click.Option(["--trust/--no-trust"], help="code of strangers"))
    return click.Command("serve", params=options).get_help(click.Context(click.Command("serve"), info_name="serve"))


def _known(text: str) -> KnownFlags:
    known = parse_help(text)
    assert known is not None
    return known


def test_llamacpp_s_help_defines_flags_and_mentions_others() -> None:
    """What stands in a description, or is listed as removed, is none."""
    known = _known(LLAMA)
    assert ("-ngl", "--gpu-layers", "--n-gpu-layers") in known.definitions
    assert ("-lm", "--load-mode") in known.definitions
    assert [known.has(name) for name in ("no-perf", "poll", "parallel", "draft-max", "no-mmap", "usage")] == [
        True, True, False, False, False, True,
    ]  # fmt: skip


def test_argparse_s_help_defines_flags_on_lines_of_their_own() -> None:
    """Neither its usage line nor the choices of a value are flags."""
    known = _known(_argparse())
    assert {names for names in known.definitions if "--quantization" in names} == {("--quantization", "-q")}
    assert ("--async-scheduling", "--no-async-scheduling") in known.definitions
    assert known.has("tensor-parallel-size")
    assert known.has("gpu-memory-utilization-of-everything-that-is-there")
    assert not known.has("fp8")
    assert not known.has("no-host")


def test_click_s_help_defines_flags_with_underscores() -> None:
    known = _known(_click().replace("Options:\n", "Options:\n  --help  Show this.\n"))
    assert known.has("max-seq-len")
    assert known.has("no-trust")
    assert known.takes("--max_batch_size", abbreviated=True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "llama-server: error while loading shared libraries: libcuda.so.1: cannot open shared object file",
        "Traceback (most recent call last):\n  File x\nImportError: no torch",
        "usage: nvidia_entrypoint.sh [-h]\n\noptions:\n  -h, --help  show this\n",
        "\n".join(f"--flag{n}  without help" for n in range(20)),
    ],
)
def test_what_is_no_help_text_says_nothing(text: str) -> None:
    """An error, another program's usage, or a page of something else."""
    assert parse_help(text) is None


@given(st.text(alphabet="-hel p,{}<[]\n\tab_.=|/x", max_size=400))
def test_no_text_is_too_strange_to_be_read(text: str) -> None:
    parse_help(text)
    parse_help(LLAMA + text)


@pytest.mark.parametrize(
    ("engine", "args", "found"),
    [
        ("llamacpp", {"ctx-size": 1, "flash_attn": "on", "c": 4, "no-perf": True, "mmap": False}, []),
        ("llamacpp", {"no-mmap": True, "ctx": 1}, [("no-mmap", "load-mode: none"), ("ctx", None)]),
        ("llamacpp", {"ngl": 99}, [("ngl", "n-gpu-layers")]),
        ("vllm", {"gpu-memory-util": 0.5, "load-format.x": 1, "Tensor_parallel_size": 2}, [("Tensor_parallel_size", "tensor_parallel_size")]),
        ("vllm", {"swap-space": 4, "hosst": "x"}, [("swap-space", None), ("hosst", "host")]),
    ],
)  # fmt: skip
def test_a_profile_s_flags_are_held_against_those_that_its_program_lists(
    profile: Make, engine: str, args: dict[str, Any], found: list[tuple[str, str | None]]
) -> None:
    """Hyphen or underscore; argparse also takes the beginning of a name; what is switched off is not said at all."""
    known = _known(LLAMA if engine == "llamacpp" else _argparse())
    assert [tuple(one) for one in unlisted_flags(profile(engine=engine, args=args), known)] == found
