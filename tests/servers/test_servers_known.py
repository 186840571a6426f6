"""Known servers over real HTTP, with a stand-in that answers as its documents say; and what proves that each works."""

import io
import json
import sys
import urllib.request
import wave
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkdash.catalog import yaml12
from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.profile import EngineKind, Profile, ServerKind, ServerSpec
from sparkdash.domain.request import ServerRoute
from sparkdash.engines.containers import LaunchContext
from sparkdash.engines.generic.known_servers import KNOWN
from sparkdash.engines.generic.trial import PROVABLE, silence, trial_of
from sparkdash.engines.registry import adapter_of
from sparkdash.errors import UpstreamError
from sparkdash.host.podman import argv
from sparkdash.supervisor.probe import try_engine
from sparkdash.supervisor.tools import Tools
from sparkdash.upstream import SmallResponse

pytestmark = pytest.mark.timeout(180)

HERE = Path(__file__).parent
SAID = [{"role": "user", "content": "Count."}]
CHAT = ("/v1/chat/completions", {"messages": SAID})
VECTOR = ("/v1/embeddings", {"input": "one"})
PICTURE = ("/v1/images/generations", {"prompt": "a square"})
FIXED = {"args": {"port": "{port}"}}
"""A plain process cannot have a port that is fixed in an image."""
CASES: dict[ServerKind, tuple[dict[str, Any], tuple[str, dict[str, Any]]]] = {
    ServerKind.ATLAS: ({}, CHAT),
    ServerKind.LUCEBOX: ({}, CHAT),
    ServerKind.OLLAMA: ({"model_id": "qwen3:8b"}, CHAT),
    ServerKind.NIM: (FIXED, CHAT),
    ServerKind.TEI: ({}, VECTOR),
    ServerKind.KOKORO: (FIXED, ("/v1/audio/speech", {"input": "One.", "voice": "af_bella"})),
}
"""Additions of each profile, and a request."""


@pytest.fixture(scope="module")
def spark(new_daemon: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A daemon that knows a profile for each kind, a reranker, and a server that draws."""
    daemon = new_daemon(runtime="process", side_by_side=False, min_dwell_s=0, stop_grace_s=20)
    weights = tmp_path_factory.mktemp("weights")
    for kind, (more, _) in CASES.items():
        daemon.write(kind.value, _document(kind, weights, **more))
    server = {"kind": "tei", "routes": ["rerank"]}
    daemon.write("ranks", _document(ServerKind.TEI, weights, profile="ranks", server=server))
    draws = {"routes": ["images"], "health": "/v1/models", "metrics": {"path": None}}
    command = [sys.executable, str(HERE / "pretend.py"), "draws"]
    more = {"profile": "draws", "server": draws, "command": command, "args": {"port": "{port}"}}
    daemon.write("draws", _document(ServerKind.KOKORO, weights, **more))
    return daemon.start()


def _document(kind: ServerKind, weights: Path, **more: Any) -> str:
    profile = {
        "profile": f"known-{kind.value}",
        "engine": "generic",
        "command": [sys.executable, str(HERE / "pretend.py"), kind.value],
        "gpu": False,
        "models": {"target": {"path": str(weights)}},
        "memory": {"weights_gib": 0.05, "kv_gib": 0, "overhead_gib": 0.05, "source": "a stand-in"},
        "server": {"kind": kind.value},
    }
    return yaml12.dump(profile | more)


@pytest.mark.parametrize("kind", CASES, ids=str)
def test_a_known_server_loads_is_proven_and_answers(spark: Any, kind: ServerKind) -> None:
    path, asked = CASES[kind][1]
    body = {"model": f"known-{kind.value}", **asked}
    request = urllib.request.Request(
        spark.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=90) as answer:
        assert answer.status == 200
    assert spark.state()["engines"][f"known-{kind.value}"]["state"] == "ready"


def test_a_picture_without_a_model_s_name_is_for_the_server_that_draws(spark: Any) -> None:
    """A request for pictures may name no model; `auto` knows what each generic server is for."""
    name = "draws"
    assert spark.call("POST", PICTURE[0], {"model": name, **PICTURE[1]}, timeout=90)[0] == 200
    assert spark.call("POST", *PICTURE, timeout=90)[0] == 200
    assert spark.state()["engines"][name]["does"] == ["draw"]
    status, answer = spark.call("POST", CHAT[0], {"model": "auto", **CHAT[1]}, timeout=90)
    assert 400 <= status < 500, answer


def test_a_reranker_keeps_its_own_path(spark: Any) -> None:
    """Text Embeddings Inference ranks `texts` at /rerank; the gateway's /v1/rerank is sent there."""
    asked = {"model": "ranks", "query": "an animal", "texts": ["a cat", "a stone"]}
    status, answer = spark.call("POST", "/v1/rerank", asked, timeout=90)
    assert (status, [row["index"] for row in answer]) == (200, [0, 1])


def test_a_reranker_takes_the_usual_request_too(spark: Any) -> None:
    """`documents` become its `texts`, and its answer `results`."""
    asked = {"model": "ranks", "query": "an animal", "documents": ["a cat", {"text": "a stone"}], "top_n": 1}
    status, answer = spark.call("POST", "/v1/rerank", asked, timeout=90)
    assert (status, answer["model"], [row["index"] for row in answer["results"]]) == (200, "ranks", [0])
    untouched = {"model": "ranks", "query": "an animal", "documents": ["a cat"]}
    assert spark.call("POST", "/upstream/ranks/rerank", untouched, timeout=90)[0] == 422


def test_a_model_that_ollama_has_not_pulled_fails_the_load_with_its_words(spark: Any, tmp_path: Path) -> None:
    """Ollama's health path says yes to everything; only the proof loads the model."""
    spark.write("unpulled", _document(ServerKind.OLLAMA, tmp_path, profile="unpulled", model_id="nobody:1b"))
    spark.post("/api/reload", {})
    status, answer = spark.call("POST", "/v1/chat/completions", {"model": "unpulled", "messages": SAID}, timeout=90)
    assert (status, answer["error"]["code"]) == (400, "bad_answer")
    assert "try pulling it first" in answer["error"]["message"]


def test_embeddings_of_an_ollama_that_chats_are_refused_before_it_is_asked(spark: Any) -> None:
    """Ollama 0.32.15 answers 501 to them; a profile with `routes: [embeddings]` is for a model that embeds."""
    status, answer = spark.call("POST", "/v1/embeddings", {"model": "known-ollama", "input": "x"})
    assert (status, answer["error"]["code"]) == (404, "route_not_served")


@pytest.mark.parametrize("kind", ServerKind, ids=str)
def test_every_kind_is_described_with_its_source_and_says_that_it_was_not_tried(kind: ServerKind) -> None:
    """A description that names no source could be anybody's guess."""
    known = KNOWN[kind]
    assert known.spec.kind is kind
    assert known.source
    assert known.tried == "not tried on hardware"


def contained(kind: str, **more: Any) -> ContainerSpec:
    """Container of a profile of this kind, at port 8123."""
    made = {"name": "p", "engine": "generic", "image": "x", "server": {"kind": kind}, **more}
    profile = Profile.model_validate(made)
    launch = LaunchContext(port=8123, containerised=True, hf_home="/hf", cache_dir="/cache")
    return adapter_of(profile).container(profile, launch)


COMMANDS = {
    ServerKind.ATLAS: "spark x serve /m --bind 127.0.0.1 --port 8123 --model-name p --max-seq-len 8192",
    ServerKind.LUCEBOX: "dflash_server x /m --host 127.0.0.1 --port 8123 --model-name p --max-seq-len 8192",
    ServerKind.TEI: "x --model-id /m --hostname 127.0.0.1 --port 8123 --max-seq-len 8192",
    ServerKind.OLLAMA: "ollama x serve --max-seq-len 8192",
}


@pytest.mark.parametrize("kind", COMMANDS, ids=str)
def test_the_command_of_a_known_server_is_as_agreed(kind: ServerKind) -> None:
    given = {"models": {"target": {"path": "/m"}}, "args": {"max-seq-len": 8192}}
    words = argv.run("podman", contained(kind.value, **given))
    assert " ".join(words).endswith(f" {COMMANDS[kind]}")
    assert words[words.index("--network") + 1] == "host"


@pytest.mark.parametrize(
    ("more", "told"),
    [({}, None), ({"context": 32768}, "32768"), ({"context": 32768, "env": {"OLLAMA_CONTEXT_LENGTH": "8192"}}, "8192")],
)
def test_ollama_is_told_the_context_of_the_profile(more: dict[str, Any], told: str | None) -> None:
    """Ollama would cut prompts to its own default in silence; the profile's own variable precedes."""
    env = contained("ollama", model_id="m", **more).env
    assert env.get("OLLAMA_CONTEXT_LENGTH") == told
    assert (env["OLLAMA_HOST"], env["OLLAMA_NO_CLOUD"]) == ("127.0.0.1:8123", "1")


def test_a_port_that_the_profile_tells_precedes_the_one_that_the_image_is_known_for() -> None:
    """The server then listens on the box's network, at the port that sparkdash chose."""
    words = argv.run("podman", contained("kokoro", args={"port": "{port}"}))
    assert words[-2:] == ["--port", "8123"]
    assert words[words.index("--network") + 1] == "host"


@pytest.mark.parametrize("kind", [ServerKind.NIM, ServerKind.KOKORO], ids=str)
def test_a_server_that_listens_on_all_addresses_gets_a_network_of_its_own(kind: ServerKind) -> None:
    """Only the box itself reaches it, through the published port."""
    words = argv.run("podman", contained(kind.value))
    assert words[words.index("--publish") + 1] == f"127.0.0.1:8123:{KNOWN[kind].spec.port}"


def test_a_server_whose_health_path_is_wrong_fails_with_what_it_answered(
    new_daemon: Callable[..., Any], tmp_path: Path
) -> None:
    """The load stands still; the failure says what was asked, and which key to correct."""
    daemon = new_daemon(runtime="process", stop_grace_s=20, no_progress_s=3)
    server = {"kind": "lucebox", "health": "/nowhere"}
    daemon.write("lost", _document(ServerKind.LUCEBOX, tmp_path, profile="lost", server=server))
    daemon.start()
    status, answer = daemon.call("POST", CHAT[0], {"model": "lost", **CHAT[1]}, timeout=90)
    assert (status, answer["error"]["code"]) == (400, "no_progress")
    assert "/nowhere answered 404" in answer["error"]["message"]
    assert "`server.health` names the path" in answer["error"]["message"]


@pytest.mark.parametrize(("kind", "args", "told"), [
    ("atlas", {"speculative": True, "mtp-quantization": "bf16", "num-drafts": 2}, "mtp k=2"),
    ("atlas", {"speculative": True}, "speculative"),
    ("atlas", {"self-speculative": True}, "self-speculative"),
    ("atlas", {"dflash": True, "draft-model": "/d", "dflash-gamma": 4}, "dflash k=4"),
    ("atlas", {"max-seq-len": 8192}, None),
    ("lucebox", {"draft": "/d", "ddtree": True, "ddtree-budget": 22}, "ddtree budget=22"),
    ("lucebox", {"draft": "/d"}, "dflash"),
    ("lucebox", {}, None),
    (None, {"speculative": True}, None),
], ids=str)  # fmt: skip
def test_it_is_told_as_the_flags_say(kind: str | None, args: dict[str, Any], told: str | None) -> None:
    server = {"kind": kind} if kind else {"routes": ["chat"]}
    made = {"name": "x", "engine": "generic", "image": "i", "command": ["x"], "server": server, "args": args}
    profile = Profile.model_validate(made)
    assert profile.engine is EngineKind.GENERIC
    assert adapter_of(profile).speculation(profile) == told


EMBEDDED = json.dumps({"data": [{"embedding": [0.1]}]}).encode()
RANKS = json.dumps({"results": [{"relevance_score": 0.9}, {"relevance_score": 0.1}]}).encode()


class PostOnly:
    """An engine that answers posts in this order; any chat would be an error."""

    def __init__(self, *answers: tuple[int, bytes]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def post(self, url: str, _body: bytes, *, content_type: str, timeout_s: float) -> SmallResponse:
        self.asked.append(url)
        status, body = self.answers.pop(0)
        return SmallResponse(status, "application/json", body)


async def tried(posts: PostOnly, **values: Any) -> None:
    tools = cast(
        "Tools", SimpleNamespace(adapter=adapter_of, upstream=posts, needs=SimpleNamespace(target=lambda _: None))
    )
    await try_engine(tools, Profile.model_validate({"name": "p", **values}), "http://e", 5.0)


POOLING = {"engine": "vllm", "args": {"runner": "pooling"}}


@pytest.mark.parametrize("answers", [((200, EMBEDDED),), ((404, b""), (200, RANKS)), ((400, b"{}"), (404, b""))])
async def test_a_pooling_engine_is_proven_by_a_vector_or_a_ranking(answers: tuple[tuple[int, bytes], ...]) -> None:
    """One that makes neither only classifies, and its health path counts."""
    engine = PostOnly(*answers)
    await tried(engine, **POOLING)
    assert not engine.answers


@pytest.mark.parametrize(
    "answer", [(500, b'{"error": "died"}'), (200, b'{"data": [{"embedding": [0, 0]}]}'), (200, b"ok")]
)
async def test_a_pooling_engine_that_answers_nothing_of_use_is_refused(answer: tuple[int, bytes]) -> None:
    """All zeros are what a broken kernel gives."""
    with pytest.raises(UpstreamError, match="the trial of embeddings"):
        await tried(PostOnly(answer), **POOLING)


async def test_a_server_that_its_health_path_alone_proves_is_asked_nothing() -> None:
    """Some servers have no cheap piece of work."""
    engine = PostOnly()
    await tried(engine, engine="generic", model_id="m", server={"port": 1, "ready_by": "health"})
    assert not engine.asked


GOOD: dict[ServerRoute, bytes] = {
    ServerRoute.CHAT: b'{"choices": [{"message": {"content": "one"}}]}',
    ServerRoute.COMPLETIONS: b'{"choices": [{"text": "one"}]}',
    ServerRoute.RESPONSES: b'{"output": [{"type": "message"}]}',
    ServerRoute.MESSAGES: b'{"content": []}',
    ServerRoute.EMBEDDINGS: EMBEDDED,
    ServerRoute.RERANK: RANKS,
    ServerRoute.SCORE: b'{"data": [{"score": 0.5}]}',
    ServerRoute.TRANSCRIPTIONS: b'{"text": ""}',
    ServerRoute.TRANSLATIONS: b'{"text": ""}',
    ServerRoute.SPEECH: b"RIFF",
    ServerRoute.IMAGES: b'{"data": [{"url": "http://x/1.png"}]}',
}


@pytest.mark.parametrize("route", sorted(PROVABLE))
def test_each_trial_takes_a_good_answer_and_no_other(route: ServerRoute) -> None:
    """An error in a body with status 200 is no proof."""
    trial = trial_of(ServerSpec(routes=(route,)), "m")
    assert trial is not None
    kind = "audio/wav" if route is ServerRoute.SPEECH else "application/json"
    assert trial.fault(kind, GOOD[route]) is None
    assert trial.fault("application/json", b'{"error": {"message": "no"}}') is not None
    assert trial.fault("application/json", b"") is not None


def test_the_keys_of_the_profile_go_into_the_request() -> None:
    trial = trial_of(ServerSpec(routes=(ServerRoute.SPEECH,), ready_with={"voice": "af_bella"}), "m")
    assert json.loads(trial.body)["voice"] == "af_bella"


def test_the_sound_of_the_proof_is_half_a_second_of_silence() -> None:
    """16 kHz, mono, 16 bits: what every recogniser takes."""
    with wave.open(io.BytesIO(silence())) as sound:
        assert (sound.getframerate(), sound.getnchannels(), sound.getsampwidth()) == (16_000, 1, 2)
        assert sound.getnframes() == 8_000
