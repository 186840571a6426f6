"""engine: generic in profile files: what is checked, what the schema says, and the formats of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkdash import rules
from sparkdash.catalog import load_catalog, summarize
from sparkdash.catalog.quadlet_unit import quadlet_unit
from sparkdash.domain.profile import Profile
from sparkdash.engines.containers import LaunchContext
from sparkdash.engines.registry import adapter_of
from sparkdash.tui.lines.words import engine_name

LAUNCH = LaunchContext(port=18000, containerised=True, hf_home="/hf", cache_dir="/cache")
BASE = "profile: mine\nengine: generic\nimage: localhost/mine:1\n"


def problems(folder: Path, text: str) -> list[str]:
    """Problems of one file, without their place."""
    (folder / "mine.yaml").write_text(text)
    return [str(problem).partition(": ")[2] for problem in load_catalog([folder]).problems]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("server: {}", "server: nothing tells on which port the server listens. Put {port} into"),
        ("server: {port: 1}\nargs: {port: '{port}'}", "is given, and {port} is told to the server too"),
        ("server: {port: 1, routes: []}", "server.routes: is empty"),
        ("server: {port: 1, routes: [chta]}", "Did you mean 'chat'?"),
        ("server: {port: 1, kind: ollma}", "Did you mean 'ollama'?"),
        ("server: {port: 1, paths: {rerank: /r}}", "gives the path of rerank, which is not among the routes"),
        ("server: {port: 1, ready_by: embeddings}", "embeddings is not among the routes"),
        ("server: {port: 1, routes: [realtime], ready_by: realtime}", "sparkdash cannot try realtime"),
        ("server: {port: 1, metrics: {names: {runing: x}}}", "Did you mean 'running'?"),
        ("server: {port: 1, log: [{stage: weights, pattern: '('}]}", "is no regular expression"),
        ("server: {port: 1, healthy: /h}", "unknown key. Did you mean 'health'?"),
        ("server: {kind: atlas}", "'target' is missing: Atlas must be given a model"),
        ("server: {port: 1}\nurl: http://127.0.0.1:1", "url: is only for engines 'openai' and 'remote'"),
        ("server: {port: 1}\nvariants: {bare: {image: null}}", "image: is missing, and nothing else says what"),
        ("server: {port: 1}\nargs: {model: '{taget}'}\nmodels: {target: {path: /m}}", "Did you mean {target}?"),
    ],
)
def test_a_mistake_is_named_with_what_to_write(tmp_path: Path, more: str, told: str) -> None:
    (found,) = problems(tmp_path, f"{BASE}{more}\n")
    assert told in found


@pytest.mark.parametrize(("more", "hits"), [
    ("command: [x, --listen, '0.0.0.0:{port}']", [("server-exposed", "command.2")]),
    ("args: {host: '::', port: '{port}'}", [("server-exposed", "args.host")]),
    ("env: {X_HOST: '0.0.0.0:{port}'}", [("server-exposed", "env.X_HOST")]),
    ("args: {host: 127.0.0.1, port: '{port}'}", []), ("server: {port: 8000}\nargs: {host: 0.0.0.0}", []),
])  # fmt: skip
def test_a_server_that_others_could_reach_without_a_key_is_found(
    tmp_path: Path, more: str, hits: list[tuple[str, str]]
) -> None:
    """Inside a network of its own it may listen on all addresses."""
    (tmp_path / "mine.yaml").write_text(
        f"{BASE}{more}\n".replace("localhost/mine:1", "localhost/mine:1@sha256:" + "0" * 64)
    )
    found = rules.findings(load_catalog([tmp_path]))
    assert [(one.rule, one.problem.key) for one in found if one.rule == "server-exposed"] == hits


def test_the_key_server_is_for_generic_engines_alone(tmp_path: Path) -> None:
    """Elsewhere it would be without effect."""
    text = "profile: a\nengine: vllm\nimage: x\nmodels: {target: {path: /m}}\nserver: {port: 1}\n"
    assert "server: is only for engine 'generic'" in problems(tmp_path, text)[0]


def test_a_variant_changes_one_key_of_the_server(tmp_path: Path) -> None:
    variant = "server: {port: 1, routes: [chat, embeddings]}\nvariants: {told: {command: [x, '{port}'], server: {port: null}}}"
    (tmp_path / "mine.yaml").write_text(f"{BASE}{variant}\n")
    found = load_catalog([tmp_path])
    server = found.profiles["mine/told"].server
    assert not found.problems
    assert server is not None
    assert (server.port, len(server.routes)) == (None, 2)


def _generic(**values: Any) -> Profile:
    return Profile.model_validate({"name": "mine", "engine": "generic", "image": "localhost/mine:1", **values})


def test_a_quadlet_publishes_the_fixed_port_and_names_the_signal() -> None:
    """Without a command the image's own entrypoint runs."""
    profile = _generic(server={"port": 8000, "stop_signal": "SIGINT"})
    lines = quadlet_unit(profile, adapter_of(profile).container(profile, LAUNCH)).splitlines()
    assert {"PublishPort=127.0.0.1:18000:8000", "StopSignal=SIGINT"} <= set(lines)
    assert not [line for line in lines if line.startswith(("Network=", "Entrypoint=", "Exec="))]


def test_the_summary_names_the_known_server() -> None:
    """Lists and screens show it in place of the kind."""
    known, other = _generic(server={"kind": "tei"}), _generic(server={"port": 1})
    assert summarize(known, adapter_of(known)).server == "Text Embeddings Inference"
    assert summarize(other, adapter_of(other)).server is None
    assert engine_name(summarize(known, adapter_of(known))) == "Text Embeddings Inference"
    assert engine_name(summarize(other, adapter_of(other))) == "any server"
