"""PromptModel: the files of a model's folder that make prompts: tokenizer, special tokens, chat templates.

Owns: reading them, and caching them while the files stay the same. Loaded in the counter's process only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from sparkdash.gateway.count.messages import Uncountable
from sparkdash.gateway.count.template import Template

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
        return {"default": file.read_text("utf-8")}
    given = config.get("chat_template") or _object(folder / "chat_template.json").get("chat_template")
    if isinstance(given, list):
        return {each["name"]: each["template"] for each in given}
    return {"default": given} if isinstance(given, str) else {}


def _object(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        value = json.loads(file.read_bytes())
    except ValueError as error:
        raise Uncountable(f"{file.name} cannot be read ({error})") from None
    return value if isinstance(value, dict) else {}
