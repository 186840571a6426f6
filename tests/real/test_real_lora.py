"""LoRA adapters by name, of a real llama-server: each answers as itself, and the model beside them as before."""

import random
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_gguf
import tiny_profiles
from figures import client

pytestmark = [pytest.mark.full, pytest.mark.real, pytest.mark.timeout(300)]
RANK = 4


def adapter(seed: int) -> bytes:
    """An adapter of the tiny model's feed-forward layers, large enough that its answers are its own."""
    chance = random.Random(seed)
    facts = {
        "general.architecture": (tiny_gguf.STRING, "llama"),
        "general.type": (tiny_gguf.STRING, "adapter"),
        "adapter.type": (tiny_gguf.STRING, "lora"),
        "adapter.lora.alpha": (tiny_gguf.FLOAT32, float(RANK)),
    }
    weights = {
        f"blk.{layer}.ffn_down.weight.lora_{part}": (shape, [chance.gauss(0, 1) for _ in range(shape[0] * shape[1])])
        for layer in range(tiny_gguf.LAYERS)
        for part, shape in (("a", (tiny_gguf.HIDDEN, RANK)), ("b", (RANK, tiny_gguf.WIDTH)))
    }
    data = (array("f", values).tobytes() for _, values in weights.values())
    head = tiny_gguf.header(facts, {name: shape for name, (shape, _) in weights.items()})
    return head + b"".join(each.ljust(tiny_gguf.padded(len(each)), b"\0") for each in data)


def test_each_adapter_answers_by_its_name_and_the_model_by_its_own(
    new_daemon: Callable[..., Any], llama: Path, tmp_path: Path
) -> None:
    files = {name: tmp_path / f"{name}.gguf" for name in ("sql", "poems")}
    for seed, file in enumerate(files.values()):
        file.write_bytes(adapter(seed))
    serves = ["small-plain", *({name: str(file)} for name, file in files.items())]
    daemon = new_daemon(runtime="process", stop_grace_s=20)
    daemon.write("small", tiny_profiles.llama_document(llama, serves=serves, modes={"brief": {"max_tokens": 3}}))
    spark = daemon.start()
    with client(spark) as asking:

        def said(model: str) -> str:
            turns: list[Any] = [{"role": "user", "content": "spark memory engine"}]
            answer = asking.chat.completions.create(model=model, messages=turns, max_tokens=24, temperature=0)
            return answer.choices[0].message.content or ""

        plain, sql, poems = said("small"), said("sql"), said("openai/poems")
        assert len({plain, sql, poems}) == 3
        assert (said("small-plain"), said("sql"), said("auto")) == (plain, sql, plain)
        assert sql.startswith(said("sql:brief"))
        assert len(said("sql:brief").split()) <= 3
        assert {"small", "sql", "poems"} <= {model.id for model in asking.models.list()}
