"""Other programs that measure the same cells: their command lines, their results, their definitions.

Owns: what each program is asked, where its figures stand in its result, and what it divides by what. Must not know:
processes, our own figures.
Versions read: llama-benchy 0.4.0, guidellm 0.8.1, vLLM 0.32's `bench serve`.
Pure.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import Any

from sparkdash.bench.run import CellKey


class PeerMetric(StrEnum):
    """Figure that both clients have, in some definition."""

    DECODE = "decode"
    PROMPT = "prompt"
    """Prompt tokens over the time to the first token."""
    TTFT = "ttft"
    AGGREGATE = "aggregate"

    @property
    def unit(self) -> str:
        """Unit of the figure."""
        return "s" if self is PeerMetric.TTFT else "tok/s"


Figures = dict[PeerMetric, float]


@dataclass(frozen=True, slots=True)
class PeerRequest:
    """Cell that a program is to measure."""

    program: str
    url: str
    """Root URL, without /v1."""
    model: str
    tokenizer: str
    cell: CellKey
    runs: int
    result: str
    """File that it writes."""
    book_url: str
    """Text that llama-benchy cuts prompts from; without it, it would fetch one from the network."""

    @property
    def requests(self) -> int:
        """Requests of all repetitions."""
        return self.runs * self.cell.concurrency

    @property
    def seed(self) -> int:
        """Seed of the prompts, one for each result file: a prefix cache knows no prompt of another cell or run."""
        return zlib.crc32(self.result.encode())


@dataclass(frozen=True, slots=True)
class PeerTool:
    """Program, and how it is used."""

    name: str
    executable: str
    install: str
    definitions: Mapping[PeerMetric, str]
    command: Callable[[PeerRequest], list[str]]
    read: Callable[[Any, CellKey], Figures]


OURS = {
    PeerMetric.DECODE: "(completion tokens - tokens of the first chunk) / (last token - first token)",
    PeerMetric.PROMPT: "prompt tokens / (first token - request sent)",
    PeerMetric.TTFT: "first content or reasoning token - request sent, by its arrival in the kernel",
    PeerMetric.AGGREGATE: "completion tokens of all concurrent requests / (last end - first start)",
}
"""Our definitions of the same figures."""


def read_result(tool: PeerTool, text: str, cell: CellKey) -> Figures:
    """Parse a program's result; figures that it lacks are left out.

    Raises:
        ValueError: the result is no JSON of the known shape.
    """
    try:
        return tool.read(json.loads(text), cell)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"{tool.name} wrote a result of another shape ({error!r})") from None


# --- llama-benchy


def _benchy_command(asked: PeerRequest) -> list[str]:
    cell = asked.cell
    return [
        asked.program, "--base-url", f"{asked.url}/v1", "--model", asked.model, "--tokenizer", asked.tokenizer,
        "--book-url", asked.book_url, "--skip-coherence", "--exact-tg", "--no-cache", "--exit-on-first-fail",
        "--runs", str(asked.runs), "--pp", str(cell.context), "--tg", str(cell.output),
        "--concurrency", str(cell.concurrency), "--format", "json", "--save-result", asked.result,
    ]  # fmt: skip


def _benchy_figures(result: Any, cell: CellKey) -> Figures:
    sized = [one for one in result["benchmarks"] if (one["prompt_size"], one["response_size"]) == _sizes(cell)]
    names = _BENCHY_ALONE if cell.concurrency == 1 else _BENCHY_TOGETHER
    known = {metric: (sized[0].get(name) or {}).get("values") for metric, name in names.items()}
    scale = {PeerMetric.TTFT: 1e-3}
    return {metric: median(values) * scale.get(metric, 1.0) for metric, values in known.items() if values}


_BENCHY_ALONE = {
    PeerMetric.DECODE: "tg_throughput",
    PeerMetric.PROMPT: "pp_throughput",
    PeerMetric.TTFT: "e2e_ttft",
}
_BENCHY_TOGETHER = {
    PeerMetric.DECODE: "tg_req_throughput",
    PeerMetric.PROMPT: "pp_req_throughput",
    PeerMetric.TTFT: "e2e_ttft",
    PeerMetric.AGGREGATE: "tg_throughput",
}


def _sizes(cell: CellKey) -> tuple[int, int]:
    return cell.context, cell.output


# --- guidellm


def _guidellm_command(asked: PeerRequest) -> list[str]:
    cell = asked.cell
    return [
        asked.program, "run", "--backend", f"kind=openai_http,target={asked.url},model={asked.model}",
        "--profile", f"kind=concurrent,streams={cell.concurrency}",
        "--constraint", f"kind=max_requests,count={asked.requests}",
        "--tokenizer", f"kind=huggingface_auto,model={asked.tokenizer}",
        "--data", f"kind=synthetic_text,prompt_tokens={cell.context},output_tokens={cell.output}",
        "--seed", f"kind=static,value={asked.seed}", "--output", f"kind=json,path={asked.result}", "--disable-console",
    ]  # fmt: skip


def _guidellm_figures(result: Any, cell: CellKey) -> Figures:
    metrics = result["benchmarks"][0]["metrics"]

    def middle(name: str) -> float:
        return float(metrics[name]["successful"]["median"])

    first_s = middle("time_to_first_token_ms") / 1e3
    found = {PeerMetric.TTFT: first_s}
    if gap_ms := middle("inter_token_latency_ms"):
        found[PeerMetric.DECODE] = 1e3 / gap_ms
    if first_s:
        found[PeerMetric.PROMPT] = middle("prompt_token_count") / first_s
    if cell.concurrency > 1:
        found[PeerMetric.AGGREGATE] = float(metrics["output_tokens_per_second"]["successful"]["mean"])
    return found


# --- vllm bench serve


def _vllm_command(asked: PeerRequest) -> list[str]:
    cell = asked.cell
    folder, _, name = asked.result.rpartition("/")
    return [
        asked.program, "bench", "serve", "--backend", "openai-chat", "--base-url", asked.url,
        "--endpoint", "/v1/chat/completions", "--model", asked.model, "--tokenizer", asked.tokenizer,
        "--dataset-name", "random", "--random-input-len", str(cell.context), "--random-output-len", str(cell.output),
        "--num-prompts", str(asked.requests), "--max-concurrency", str(cell.concurrency), "--ignore-eos",
        "--temperature", "0", "--seed", str(asked.seed), "--disable-tqdm", "--save-result",
        "--result-dir", folder or ".", "--result-filename", name,
    ]  # fmt: skip


def _vllm_figures(result: Any, cell: CellKey) -> Figures:
    first_s = result["median_ttft_ms"] / 1e3
    found = {PeerMetric.TTFT: first_s}
    if per_token_ms := result["median_tpot_ms"]:
        found[PeerMetric.DECODE] = 1e3 / per_token_ms
    if first_s and result["completed"]:
        found[PeerMetric.PROMPT] = result["total_input_tokens"] / result["completed"] / first_s
    if cell.concurrency > 1:
        found[PeerMetric.AGGREGATE] = result["output_throughput"]
    return found


_PER_TOKEN = "the first chunk counts as one token, so larger first chunks read too fast"  # noqa: S105 - no secret
TOOLS = {
    one.name: one
    for one in (
        PeerTool(
            "llama-benchy", "llama-benchy", "pip install llama-benchy",
            {
                PeerMetric.DECODE: "tokens after the first chunk / (last - first token), median of its runs; without "
                f"token counts from the server {_PER_TOKEN}",
                PeerMetric.PROMPT: "prompt tokens / (first response - request sent - the time of a model list)",
                PeerMetric.TTFT: "first content - request sent, when its loop reads it",
                PeerMetric.AGGREGATE: "decode tokens of all / (last token - first token of all): no prefill in it",
            },
            _benchy_command, _benchy_figures,
        ),
        PeerTool(
            "guidellm", "guidellm", "pip install guidellm",
            {
                PeerMetric.DECODE: f"1 / ITL = (tokens - 1) / (last - first token); {_PER_TOKEN}",
                PeerMetric.PROMPT: "prompt tokens / TTFT, both medians",
                PeerMetric.TTFT: "first content or reasoning - request sent, when its loop reads it",
                PeerMetric.AGGREGATE: "output tokens per second over the whole measurement",
            },
            _guidellm_command, _guidellm_figures,
        ),
        PeerTool(
            "vllm", "vllm", "pip install vllm, or use the engine's own image",
            {
                PeerMetric.DECODE: f"1 / TPOT = (tokens - 1) / (latency - TTFT); {_PER_TOKEN}",
                PeerMetric.PROMPT: "input tokens / TTFT; the input is counted without the chat template",
                PeerMetric.TTFT: "first chunk with choices, an empty one too - request sent",
                PeerMetric.AGGREGATE: "output tokens of all requests / duration of the whole measurement",
            },
            _vllm_command, _vllm_figures,
        ),
    )
}  # fmt: skip
"""Known programs by name."""


def measured_cells(keys: Mapping[CellKey, int]) -> Iterator[CellKey]:
    """Yield the cells that such programs can measure: cold prompts of a given length, all classes of text."""
    for key in keys:
        if key.context and not key.warm and not key.text and key.kind.value == "speed":
            yield key
