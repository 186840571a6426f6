"""Reports in the layouts of published tables, and published figures beside a run's own.

Pure.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence

from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.judge.paired_prompts import PairedCell
from sparkdash.bench.report import arm_tables, blocks
from sparkdash.bench.report.arm_tables import TableSource
from sparkdash.bench.report.blocks import (
    DASH,
    Block,
    Grid,
    Heading,
    TableCell,
    TextBlock,
    Tone,
    format_change,
    format_value,
)
from sparkdash.bench.report.report import ArmReport
from sparkdash.bench.run import CellKey, Kind
from sparkdash.domain.profile import Published
from sparkdash.domain.weights import WeightFacts
from sparkdash.units import duration


def batch_reports(source: TableSource) -> Iterator[Block]:
    """Part of each arm: batches with their aggregate, the delta hit rate of the prefix cache, the start."""
    for arm in source.report.arms:
        told = arm.provenance
        yield Heading(2, arm.name)
        yield TextBlock(
            (f"Date: {source.report.run.created_at:%Y-%m-%d}", f"Config: {_flags(told.argv if told else ())}")
        )
        yield from arm_tables.batch_table(source, arm.name)
        if source.report.planned(Kind.PREFIX):
            yield from arm_tables.prefix_cache_line(source, arm.name)
        start = DASH if told is None or told.startup_s is None else f"about {duration(told.startup_s)}"
        yield TextBlock((f"Startup to first inference: {start}.",))


def _flags(argv: Sequence[str]) -> str:
    """Return the flags of a start command, each with its value: `--tensor-parallel-size=2, --quantization=fp8`."""
    found: list[str] = []
    for word in argv:
        if word.startswith("--"):
            found.append(word)
        elif found and "=" not in found[-1]:
            found[-1] += f"={shlex.quote(word)}"
    return ", ".join(found) or DASH


PAIRED_HOW = (
    "Each prompt against itself: geometric mean of the ratios, 95 % interval and p of the paired t over their "
    "logarithms. They describe these prompts in these launches and claim nothing: what "
    "may be claimed rests on launches."
)
PAIRED_HEAD = ("Cell", "Figure", "N", "Baseline", "Arm", "Ratio", "Prompts higher", "Paired t")


def paired_tables(source: TableSource) -> Iterator[Block]:
    """Table of each arm, a row per cell and figure; nothing without enough common prompts."""
    found = source.report.pairs
    if not found:
        return
    yield Heading(2, "The same prompts on both arms")
    for arm in dict.fromkeys(one.arm for one in found):
        yield Heading(3, f"{arm} against {source.report.run.baseline}")
        yield Grid(head=PAIRED_HEAD, rows=tuple(_paired_row(source, one) for one in found if one.arm == arm))
    yield TextBlock((PAIRED_HOW,), Tone.DIM)


def _paired_row(source: TableSource, one: PairedCell) -> tuple[TableCell, ...]:
    texts = (
        blocks.cell_name(one.key, source.words),
        one.metric.value,
        str(len(one.pairs)),
        format_value(one.base_median),
        format_value(one.arm_median),
        f"{one.ratio:.2f}x [{one.low:.2f}, {one.high:.2f}]",
        f"{one.higher}/{len(one.pairs)}",
        p_text(one.p_t),
    )
    return tuple(map(TableCell, texts))


def p_text(p: float) -> str:
    """Format a p value: `p = 0.012`, `p < 0.001`."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def paired_headline(cells: Sequence[PairedCell]) -> str | None:
    """Return the published headline of one arm's decode rates, `paired N=30: 32.1 TG tok/s @2K, …; 1.87-2.67x …`."""
    if not cells:
        return None
    rates = (f"{one.arm_median:.2f}{' TG tok/s' * (not at)} @{_context(one)}" for at, one in enumerate(cells))
    ratios = [one.ratio for one in cells]
    span = f"{min(ratios):.2f}-{max(ratios):.2f}x" if len(cells) > 1 else f"{ratios[0]:.2f}x"
    return f"paired N={min(len(one.pairs) for one in cells)}: {', '.join(rates)}; {span} vs the paired baseline"


def _context(one: PairedCell) -> str:
    return blocks.context_name(one.key.context)


_GGUF = re.compile(r"(?:^|[-._])((?:UD-)?I?Q\d_[A-Z0-9_]+|[BF]F?16|MXFP4)(?:-\d{5}-of-\d{5})?\.gguf$", re.IGNORECASE)
_IN_NAME = re.compile(
    r"(?<![A-Za-z])(NVFP4|MXFP4|FP8|AWQ|GPTQ(?:-Int\d)?|INT\d|BF16|FP16)(?![A-Za-z0-9])", re.IGNORECASE
)
_FLAG_LABELS = {
    "gptq_marlin": "GPTQ", "gptq": "GPTQ", "awq": "AWQ", "awq_marlin": "AWQ", "mxfp4": "MXFP4", "nvfp4": "NVFP4",
    "modelopt_fp4": "NVFP4", "fp4": "FP4", "fp8": "FP8", "bitsandbytes": "bnb",
}  # fmt: skip
"""Values of `--quantization` that name a format. `modelopt` and `compressed-tensors` name a container of several."""
_UNQUANTIZED = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def quantization_label(weights: WeightFacts | None, argv: Sequence[str], model: str | None) -> str | None:
    """Return the label; None when nothing tells it."""
    found = _of_file(model, *argv) or (_of_weights(weights) if weights else None)
    return found or _of_flag(argv) or _of_name(model)


def _of_weights(weights: WeightFacts) -> str | None:
    if weights.format == "gguf":
        return None
    if weights.quantization is None:
        return _UNQUANTIZED.get(weights.dtype or "", weights.dtype)
    method, _, bits = weights.quantization.partition(" int")
    return f"{method.upper()}-Int{bits}" if bits and "+" not in bits else weights.quantization.upper()


def _of_file(*names: str | None) -> str | None:
    """Return the type in a GGUF file's name, which its header splits into many."""
    found = (_GGUF.search(name) for name in names if name)
    return next((one[1].upper() for one in found if one), None)


def _of_flag(argv: Sequence[str]) -> str | None:
    words = [part for word in argv for part in word.split("=", 1)]
    place = next((at for at, word in enumerate(words[:-1]) if word in ("--quantization", "-q")), None)
    return None if place is None else _FLAG_LABELS.get(words[place + 1].lower())


def _of_name(model: str | None) -> str | None:
    found = _IN_NAME.search(model or "")
    return found[1].upper().replace("-INT", "-Int") if found else None


RECIPE_HEAD = ("Recipe", "Model", "Quant", "Spec method", "Headline (tok/s)", "Status")
LEAST_PROMPT = 1024
"""Prompts below this say little of prefill."""
Weights = Mapping[str, Mapping[str, WeightFacts]]
Headline = Callable[[TableSource, str], str | None]
"""(source, arm) -> the words of its headline; None: not measured."""


def prefill_recipes(source: TableSource, weights: Weights) -> Iterator[Block]:
    """Table of the arms with their prefill rates: `3030.63 pp tok/s at pp2048/tg32/c1, n=30`."""
    yield from _recipes(source, weights, "Prefill", _prefill_headline)


def paired_recipes(source: TableSource, weights: Weights) -> Iterator[Block]:
    """Table of the arms with their paired decode rates."""
    yield from _recipes(source, weights, "Paired runs", _paired_headline)


def _recipes(source: TableSource, weights: Weights, title: str, headline: Headline) -> Iterator[Block]:
    yield Heading(2, title)
    rows = tuple(_recipe_row(source, arm, weights, headline(source, arm.name)) for arm in source.report.arms)
    yield Grid(head=RECIPE_HEAD, rows=rows)


def _recipe_row(source: TableSource, arm: ArmReport, weights: Weights, headline: str | None) -> tuple[TableCell, ...]:
    told = arm.provenance
    model = told.model if told else None
    label = quantization_label(weights.get(arm.profile, {}).get("target"), told.argv if told else (), model)
    texts = (
        arm.name,
        model or DASH,
        label or DASH,
        DASH if told is None else told.speculation or "none (AR)",
        headline or "TBD",
        _status(source, arm),
    )
    return tuple(map(TableCell, texts))


def _status(source: TableSource, arm: ArmReport) -> str:
    if arm.impossible:
        return f"cannot run: {arm.impossible}"
    if missing := next((one for one in source.report.filling if one.arm == arm.name), None):
        return f"measuring, {missing.of - missing.cells} of {missing.of} cells"
    return "simulated" if source.report.simulated else "measured"


def _prefill_headline(source: TableSource, arm: str) -> str | None:
    keys = [one for one in source.report.planned() if one.context >= LEAST_PROMPT and one.concurrency == 1]
    told = [text for key in keys if not key.warm and (text := _prefill_text(source, arm, key)) is not None]
    return "; ".join(told) or None


def _prefill_text(source: TableSource, arm: str, key: CellKey) -> str | None:
    figure = source.figure(arm, key, BenchMetric.PREFILL)
    if figure is None or figure.median is None:
        return None
    return f"{figure.median:.2f} pp tok/s at pp{key.context}/tg{key.output}/c{key.concurrency}, n={figure.n}"


def _paired_headline(source: TableSource, arm: str) -> str | None:
    cells = [one for one in source.report.pairs if one.arm == arm and one.metric is BenchMetric.DECODE]
    return paired_headline(cells) or _baseline_headline(source, arm)


def _baseline_headline(source: TableSource, arm: str) -> str | None:
    found = ((key, source.figure(arm, key, BenchMetric.DECODE)) for key in source.grid_keys)
    known = [(key, one) for key, one in found if one is not None and one.median is not None]
    rates = [f"{one.median:.2f} @{blocks.context_name(key.context)}" for key, one in known]
    return f"{rates[0].replace(' @', ' TG tok/s @')}{''.join(f', {rate}' for rate in rates[1:])}" if rates else None


_CONTEXT = re.compile(r"ctx (\d+)(K?), (short|medium|long)")
_CROWD = re.compile(r"(\d+) at once, (\d+) tokens each")
_PREFILL = re.compile(r"pp(\d+)(K?), tg(\d+)")

RATES = (
    (BenchMetric.E2E, "e2e_tok_s"),
    (BenchMetric.DECODE, "decode_tok_s"),
    (BenchMetric.PREFILL, "prefill_tok_s"),
    (BenchMetric.AGGREGATE, "aggregate_tok_s"),
)


def matching_cell(one: Published, source: TableSource) -> CellKey | None:
    """Return the cell nearest to a published workload; None without a match."""
    keys: Sequence[CellKey] = source.report.planned()
    if found := _CONTEXT.fullmatch(one.workload):
        keys = source.grid_keys
        words = {word: tokens for tokens, word in source.words.items()}
        wanted = (_tokens(found[1], found[2]), words.get(found[3]), 1)
    elif found := _CROWD.fullmatch(one.workload):
        return next((key for key in keys if (key.output, key.concurrency) == (int(found[2]), int(found[1]))), None)
    elif found := _PREFILL.match(one.workload):
        wanted = (_tokens(found[1], found[2]), int(found[3]), 1)
    else:
        return None
    return next((key for key in keys if (key.context, key.output, key.concurrency) == wanted and not key.warm), None)


def published_tables(source: TableSource, published: Mapping[str, Sequence[Published]]) -> Iterator[Block]:
    """Build a table for each arm with comparable published figures."""
    words = source.words
    tables: list[Block] = []
    for arm in source.report.arms:
        rows = tuple(_rows(source, arm.name, published.get(arm.profile, ()), words))
        if rows:
            tables += [
                Heading(3, arm.name),
                Grid(head=("Cell", "Figure", "Published", "Here", "Difference", "Source"), rows=rows),
            ]
    if tables:
        yield Heading(2, "Beside the published figures")
        yield TextBlock(("Other boxes, prompts and harnesses: a difference here is no verdict.",), Tone.DIM)
        yield from tables


def _rows(
    source: TableSource, arm: str, published: Sequence[Published], words: dict[int, str]
) -> Iterator[tuple[TableCell, ...]]:
    for one in published:
        key = matching_cell(one, source)
        for metric, name in RATES:
            theirs: float | None = getattr(one, name)
            if key is None or theirs is None:
                continue
            ours = source.figure(arm, key, metric)
            here = ours.median if ours else None
            gap = format_change(here / theirs - 1) if here else ""
            said = (
                blocks.cell_name(key, words),
                metric.value,
                format_value(theirs),
                format_value(here),
                gap,
                one.source,
            )
            yield tuple(TableCell(text) for text in said)


def _tokens(count: str, kilo: str) -> int:
    return int(count) * (1024 if kilo else 1)
