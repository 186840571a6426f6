"""`python -m sparkdash.gateway.count --fd N`: the counter, a child process of the daemon.

Counts run one after the other: most take milliseconds, and the gateway ends one that does not stop.
"""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from sparkdash.catalog.checkpoint.weights import locate_checkpoint
from sparkdash.domain.profile import ModelRef
from sparkdash.errors import ProfileError
from sparkdash.gateway.child_process import JSON, Message, Receive, Send, read_body, send_answer, serve_child
from sparkdash.gateway.count import chat
from sparkdash.gateway.count.chat import CountRequest, CountResult, InvalidPrompt, Uncountable, decode_count_request
from sparkdash.gateway.count.template import Template
from sparkdash.paths import LARGE, read_small_file, read_small_text
from sparkdash.units import GIB

KEPT = 3
"""Cached models; a large vocabulary takes some 100 MB."""
TOKENIZER, CONFIG, MODEL = "tokenizer.json", "tokenizer_config.json", "config.json"
_FILES = (TOKENIZER, CONFIG, MODEL, "special_tokens_map.json", "chat_template.jinja", "chat_template.json")
_OWN_WORDS = frozenset(
    {"cohere", "deepseek_v32", "deepseek_v4", "deepseek_v41", "gpt_oss", "inkling", "kimi_audio", "kimi_k3"}
)
"""Model types whose prompts vLLM 0.32 writes by its own code, whatever their template says."""
_MISTRAL = ("tekken.json", "tokenizer.model.v*")
"""Files with which vLLM takes Mistral's own tokenizer."""


@dataclass(frozen=True)
class PromptModel:
    """Tokenizer and templates of one model."""

    tokenizer: Tokenizer
    tokens: Mapping[str, str]
    """Special tokens by the names that templates have for them."""
    sources: Mapping[str, str]
    _compiled: dict[str, Template] = field(default_factory=dict)

    def template(self, *, tools: bool) -> Template:
        """Choose the template for a request. Raises Uncountable without one."""
        name = "tool_use" if tools and "tool_use" in self.sources else "default"
        if name not in self.sources:
            raise Uncountable("its model has no chat template")
        return self.written(self.sources[name])

    def written(self, source: str) -> Template:
        """Compile a template, once. Raises Uncountable."""
        if source not in self._compiled:
            self._compiled[source] = Template(source, self.tokens)
        return self._compiled[source]

    def count(self, text: str) -> int:
        """Count the tokens of a prompt; its template has written the special ones already."""
        return len(self.tokenizer.encode(text, add_special_tokens=False))


def read_prompt_model(folder: Path) -> PromptModel:
    """Read the model in that folder. Raises Uncountable when a file is missing or of an unknown kind."""
    if not (folder / TOKENIZER).is_file():
        raise Uncountable(f"there is no {TOKENIZER} in {folder}")
    if any(next(folder.glob(pattern), None) for pattern in _MISTRAL):
        raise Uncountable("its prompts are written by Mistral's own tokenizer")
    stamps = tuple((name, file.stat().st_mtime_ns) for name in _FILES if (file := folder / name).is_file())
    return _read(folder.resolve(), stamps)


@lru_cache(maxsize=KEPT)
def _read(folder: Path, _stamps: tuple[tuple[str, int], ...]) -> PromptModel:
    kind = _object(folder / MODEL).get("model_type")
    if kind in _OWN_WORDS:
        raise Uncountable(f"the prompts of a model of type {kind} are written by the engine's own code")
    config = _object(folder / CONFIG)
    try:
        tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
    except Exception as error:  # noqa: BLE001 - it has no kind of its own
        raise Uncountable(f"{TOKENIZER} cannot be read ({error})") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.add_special_tokens([*_lacking(tokenizer, config)])
    tokens = dict(_special(_object(folder / "special_tokens_map.json"))) | dict(_special(config))
    return PromptModel(tokenizer, tokens, _sources(folder, config))


def _lacking(tokenizer: Tokenizer, config: Mapping[str, Any]) -> Iterator[AddedToken]:
    """Yield the tokens that only tokenizer_config.json has, special and not."""
    added = config.get("added_tokens_decoder")
    for each in added.values() if isinstance(added, dict) else ():
        if tokenizer.token_to_id(each["content"]) is None:
            flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
            yield AddedToken(each["content"], **{flag: bool(each.get(flag)) for flag in flags})


def _special(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in config.items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            yield name, text


def _sources(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Read the templates; a separate file precedes the configuration's, as in transformers."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return {"default": read_small_text(file, LARGE)}
    given = config.get("chat_template") or _object(folder / "chat_template.json").get("chat_template")
    if isinstance(given, list):
        return {each["name"]: each["template"] for each in given}
    return {"default": given} if isinstance(given, str) else {}


def _object(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        value = json.loads(read_small_file(file, LARGE))
    except (ValueError, RecursionError) as error:
        raise Uncountable(f"{file.name} cannot be read ({error})") from None
    return value if isinstance(value, dict) else {}


def count_tokens(order: CountRequest, body: dict[str, Any]) -> int:
    """Count the prompt's tokens. Raises Uncountable: only the engine can. InvalidPrompt: no engine would take it."""
    model = read_prompt_model(_folder(order))
    tools = chat.chat_tools(body)
    template = model.template(tools=tools is not None) if order.template is None else _given(order, model)
    messages = chat.chat_messages(body, system_first=template.system_first)
    return model.count(template.prompt(messages, tools, _words(order, body, template), in_parts=order.in_parts))


def _folder(order: CountRequest) -> Path:
    try:
        found = locate_checkpoint(order.model, Path(order.hf_home), order.mounts)
    except ProfileError as error:
        raise Uncountable(error.text()) from None
    if not found.is_dir():
        raise Uncountable(f"{found.name} is one file, and the tokenizer inside is not read")
    return found


def _given(order: CountRequest, model: PromptModel) -> Template:
    source = order.template or ""
    if "{%" in source or "{{" in source:
        return model.written(source)
    try:
        file = locate_checkpoint(ModelRef(path=source), Path(order.hf_home), order.mounts)
        return model.written(read_small_text(file, LARGE))
    except (ProfileError, OSError):
        raise Uncountable(f"its chat template {source} is not on this box") from None


def _words(order: CountRequest, body: dict[str, Any], template: Template) -> dict[str, Any]:
    """Collect the template's variables: the profile's, the client's, and the reasoning effort."""
    own = body.get("chat_template_kwargs") or {}
    if not isinstance(own, dict):
        raise InvalidPrompt("chat_template_kwargs must be an object")
    effort = chat.reasoning_effort(body)
    if effort == "none" and not _can_be_off(template, order.in_parts):
        effort = "low"
    return {**order.words, **own, **_thinking(effort, switched="enable_thinking" in own)}


def _thinking(effort: str | None, *, switched: bool = False) -> dict[str, Any]:
    if effort is None:
        return {}
    return {"reasoning_effort": effort} | ({} if switched else {"enable_thinking": effort != "none"})


def _can_be_off(template: Template, in_parts: bool | None) -> bool:
    """Whether switching thinking off changes the prompt; it does not in a template that ignores the word."""
    probe = [{"role": "user", "content": "Hi"}]

    def prompt(effort: str) -> str | None:
        try:
            return template.prompt(probe, None, _thinking(effort), in_parts=in_parts)
        except InvalidPrompt:
            return None

    off = prompt("none")
    return off is not None and all(prompt(effort) != off for effort in chat.EFFORTS)


MEMORY = 3 * GIB
"""Limit of address space, most of which is never touched: the largest vocabularies take a few hundred MB."""


async def app(_scope: Message, receive: Receive, send: Send) -> None:
    await send_answer(send, 200, _told(await read_body(receive)).model_dump_json(exclude_none=True).encode(), JSON)


def _told(sent: bytes) -> CountResult:
    try:
        return CountResult(tokens=count_tokens(*decode_count_request(sent)))
    except Uncountable as error:
        return CountResult(unknown=str(error))
    except InvalidPrompt as error:
        return CountResult(refused=str(error))
    except (MemoryError, RecursionError) as error:
        return CountResult(unknown=f"its prompt takes too much to be written ({type(error).__name__})")
    except Exception as error:  # noqa: BLE001 - a model's files can be odd in any way, and the next one's are not
        return CountResult(unknown=f"its files are of an unknown shape ({type(error).__name__}: {error})")


if __name__ == "__main__":
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the cores are for serving
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    serve_child(app, "python -m sparkdash.gateway.count")
