"""Proposals of a setup: which steps, and the profile to begin with."""

from types import SimpleNamespace
from typing import Any

import pytest

from sparkdash.discovery.found import Discovered, FoundFile, FoundServer, SetupStep, StepOutlook
from sparkdash.discovery.propose import BoxState, attached_profiles, first_profile, plain_name, propose
from sparkdash.domain.images import ImageBuild
from sparkdash.domain.metric import Memory, Sample
from sparkdash.domain.profile import EngineKind, ModelRef, ProfileSummary
from sparkdash.host.inventory import Image, ProfileStock
from sparkdash.host.local_weights import Presence
from sparkdash.tui.first_run import fitting

GIB = 2**30
OLLAMA = FoundServer("Ollama", "http://127.0.0.1:11434", ("org/Qwen3:8b", "tiny"))


def summary(name: str, **changes: Any) -> ProfileSummary:
    """A profile that can be pulled and needs 20 GiB."""
    values = {
        "name": name, "about": "", "engine": EngineKind.VLLM, "engine_version": None, "image": "registry/vllm:1",
        "weights": (ModelRef(hf=f"org/{name}"),), "serves": (), "context": None, "needs_bytes": 20 * GIB, "nodes": 1,
        "cannot_run": None, "nearest": None, "published_decode_tok_s": None, "published_note": None,
        "speculation": None, "fingerprint": name, "simulated": False,
    }  # fmt: skip
    return ProfileSummary(**(values | changes))


def stock(name: str, *, image: bool, weights: bool) -> ProfileStock:
    return ProfileStock(Image("registry/vllm:1", image), Presence(f"org/{name}", weights, GIB))


def state(*profiles: ProfileSummary, **changes: Any) -> BoxState:
    given: dict[str, Any] = {"discovered": Discovered(), "stock": {}, "box_bytes": 120 * GIB}
    return BoxState(profiles=profiles, **(given | changes))


def proposal(found: BoxState, step: SetupStep) -> Any:
    return next(one for one in propose(found) if one.step is step)


def test_every_step_is_proposed_in_order() -> None:
    assert [one.step for one in propose(state())] == list(SetupStep)


KNOWN, LARGE, SMALL = summary("gpt-oss-20b"), summary("large"), summary("small", needs_bytes=5 * GIB)
SPEECH = summary("speech", needs_bytes=3 * GIB)
BOTH = {name: stock(name, image=True, weights=True) for name in ("large", "small")}
SMALLEST = (SMALL, "the smallest that can be pulled")


@pytest.mark.parametrize(
    ("profiles", "facts", "chosen"),
    [
        ((KNOWN, LARGE), {"stock": BOTH, "chosen": "gpt-oss-20b"}, (KNOWN, "you named it")),
        ((KNOWN, LARGE), {"stock": BOTH, "chosen": "c"}, None),
        ((KNOWN, SMALL, LARGE), {"stock": BOTH}, (LARGE, "its image and weights are on this box")),
        (
            (KNOWN, SMALL, LARGE),
            {"stock": {"large": stock("large", image=False, weights=True)}},
            (LARGE, "its weights are on this box"),
        ),
        ((LARGE, SMALL, KNOWN), {}, (KNOWN, "a model that suits this box well and is fetched quickly")),
        ((LARGE, SMALL, KNOWN.replace(image="localhost/built:1")), {}, SMALLEST),
        ((KNOWN, SMALL), {"box_bytes": 24 * GIB, "reserve_bytes": 10 * GIB}, SMALLEST),
        ((SPEECH, SMALL), {"without_text": {"speech"}}, SMALLEST),
    ],
    ids=[
        "named by the owner", "a name that nothing has", "files that are here", "weights that are here",
        "a fresh box", "an image that nothing publishes", "beside the reserve", "no text",
    ],
)  # fmt: skip
def test_the_profile_to_begin_with(profiles: Any, facts: dict[str, Any], chosen: Any) -> None:
    assert first_profile(state(*profiles, **facts)) == chosen


def test_a_name_that_no_profile_has_is_told() -> None:
    assert "no profile is called 'c'" in proposal(state(KNOWN, chosen="c"), SetupStep.MODEL).found


@pytest.mark.parametrize("change", [
    {"needs_bytes": 200 * GIB}, {"needs_bytes": None}, {"nodes": 2}, {"cannot_run": "why"},
    {"engine": EngineKind.REMOTE},
])  # fmt: skip
def test_what_cannot_run_here_is_never_chosen(change: dict[str, Any]) -> None:
    found = state(summary("a", **change))
    assert first_profile(found) is None
    assert proposal(found, SetupStep.MODEL).outlook is StepOutlook.NOTHING
    assert "120.0 GiB" in proposal(found, SetupStep.MODEL).found
    assert proposal(found, SetupStep.FIRST_TOKEN).outlook is StepOutlook.NOTHING


def test_setup_and_the_dashboard_say_the_same_of_what_fits() -> None:
    """A profile whose image nobody publishes fits, though there is nothing to pull; one beside the reserve does not."""
    profiles = (summary("own", image="localhost/own:1"), summary("large", needs_bytes=115 * GIB))
    memory = Memory(total=120 * GIB, available=100 * GIB, free=100 * GIB, reserve=10 * GIB)
    snapshot: Any = SimpleNamespace(profiles=profiles, sample=Sample(at=0, memory=memory))
    assert fitting(snapshot) == [profiles[0]]
    found = proposal(state(*profiles, reserve_bytes=10 * GIB), SetupStep.MODEL).found
    assert "that fit into the 120.0 GiB of this box beside the reserve of 10.0 GiB: 1, but none that can be" in found


def test_a_server_that_runs_is_attached_once() -> None:
    names = [file for file, _ in attached_profiles([OLLAMA])]
    assert names == ["qwen3-8b.yaml", "tiny.yaml"]
    found = Discovered(servers=(OLLAMA,))
    assert proposal(state(discovered=found), SetupStep.ATTACH).subjects == tuple(names)
    one_is_here = state(discovered=found, own_files=["tiny.yaml"])
    assert proposal(one_is_here, SetupStep.ATTACH).subjects == ("qwen3-8b.yaml",)
    assert proposal(state(discovered=found, own_files=names), SetupStep.ATTACH).outlook is StepOutlook.DONE


def test_an_attached_model_keeps_the_name_that_clients_of_its_server_use() -> None:
    """Ollama's clients ask for "qwen3:8b"; the tag of an untagged model is understood anyway."""
    server = FoundServer("Ollama", "http://127.0.0.1:11434", ("qwen3:8b", "tiny:latest", "org/Big:1b", "taken:latest"))
    made = dict(attached_profiles([server], frozenset({"taken", "org/Big:1b"})))
    assert {file: profile.get("serves") for file, profile in made.items()} == {
        "qwen3-8b.yaml": ["qwen3:8b"], "tiny.yaml": None, "big-1b.yaml": None, "ollama-taken.yaml": None,
    }  # fmt: skip


def test_a_model_that_writes_no_text_is_attached_and_not_begun_with() -> None:
    """An embedding model would refuse the chat of the first token."""
    found = Discovered(servers=(FoundServer("Ollama", OLLAMA.url, ("vectors",), frozenset({"vectors"})),))
    assert proposal(state(discovered=found), SetupStep.ATTACH).subjects == ("vectors.yaml",)
    attached = summary("vectors", engine=EngineKind.OPENAI, image=None, weights=(), needs_bytes=0)
    assert proposal(state(attached, discovered=found), SetupStep.FIRST_TOKEN).outlook is StepOutlook.NOTHING
    steps = propose(state(summary("gpt-oss-20b"), discovered=found), attaches=True)
    assert next(one for one in steps if one.step is SetupStep.FIRST_TOKEN).subjects == ("gpt-oss-20b",)


def test_an_image_that_no_registry_has_is_built_before_the_pull() -> None:
    own = summary("own", build=ImageBuild(context="images/own"))
    assert proposal(state(own, chosen="own"), SetupStep.MODEL).commands == ("sparkdash build own", "sparkdash pull own")
    here = {"own": stock("own", image=True, weights=False)}
    assert proposal(state(own, chosen="own", stock=here), SetupStep.MODEL).commands == ("sparkdash pull own",)


def test_a_model_that_is_served_already_is_the_first_to_be_asked() -> None:
    attached = summary("tiny", engine=EngineKind.OPENAI, image=None, weights=(), needs_bytes=0)
    found = state(summary("gpt-oss-20b"), attached, discovered=Discovered(servers=(OLLAMA,)))
    assert proposal(found, SetupStep.MODEL).outlook is StepOutlook.DONE
    assert proposal(found, SetupStep.FIRST_TOKEN).subjects == ("tiny",)


def test_a_configuration_is_imported_once() -> None:
    files = (FoundFile("llama-swap", "/x/config.yaml"),)
    for origins, outlook in (([], StepOutlook.PROPOSED), (["config.yaml"], StepOutlook.DONE)):
        found = state(discovered=Discovered(files=files), origins=origins)
        assert proposal(found, SetupStep.IMPORT).outlook is outlook


@pytest.mark.parametrize(("service", "outlook"), [(None, "nothing"), (False, "proposed"), (True, "done")])
def test_the_service_is_proposed_where_systemd_can_run_it(service: bool | None, outlook: str) -> None:
    assert proposal(state(service=service), SetupStep.SERVICE).outlook == outlook


def test_only_clients_that_are_not_set_up_are_proposed() -> None:
    assert proposal(state(clients={"codex": True, "zed": False}), SetupStep.CLIENTS).subjects == ("zed",)
    assert proposal(state(clients={"codex": True}), SetupStep.CLIENTS).outlook is StepOutlook.DONE
    assert proposal(state(), SetupStep.CLIENTS).outlook is StepOutlook.NOTHING


@pytest.mark.parametrize(("model", "name"), [("org/Qwen3:8b", "qwen3-8b"), ("a b.C", "a-b.c"), ("///", "attached")])
def test_a_model_s_name_becomes_a_profile_s(model: str, name: str) -> None:
    assert plain_name(model) == name


def test_a_server_that_will_be_attached_saves_the_download() -> None:
    """The steps are shown as they will come: a declined attach begins with a download."""
    found = state(summary("gpt-oss-20b"), discovered=Discovered(servers=(OLLAMA,)))
    shown = {one.step: one for one in propose(found, attaches=True)}
    assert shown[SetupStep.MODEL].outlook is StepOutlook.NOTHING
    assert shown[SetupStep.MODEL].found == "nothing to fetch: a server has qwen3-8b already"
    assert shown[SetupStep.FIRST_TOKEN].subjects == ("qwen3-8b",)
    assert shown[SetupStep.FIRST_TOKEN].found == "asks qwen3-8b for one word"
    assert proposal(found, SetupStep.FIRST_TOKEN).subjects == ("gpt-oss-20b",)
    named = state(summary("gpt-oss-20b"), discovered=Discovered(servers=(OLLAMA,)), chosen="gpt-oss-20b")
    assert propose(named, attaches=True) == propose(named)


def test_a_profile_that_fits_only_into_the_reserve_is_not_proposed() -> None:
    """The start would be refused after the download."""
    found = proposal(state(LARGE, box_bytes=24 * GIB, reserve_bytes=10 * GIB), SetupStep.MODEL)
    assert found.outlook is StepOutlook.NOTHING
    assert found.found.endswith("fits into the 24.0 GiB of this box beside the reserve of 10.0 GiB")


def test_for_a_simulated_daemon_nothing_is_fetched_and_no_client_is_changed_unasked() -> None:
    found = state(summary("gpt-oss-20b"), simulated=True, clients={"codex": False})
    assert proposal(found, SetupStep.MODEL).outlook is StepOutlook.NOTHING
    clients = proposal(found, SetupStep.CLIENTS)
    assert (clients.outlook, clients.found) == (StepOutlook.OFFERED, "found here: codex; the daemon is simulated")


def test_an_attached_model_replaces_no_other_profile() -> None:
    """A file of the same name would hide the shipped one with all its variants."""
    shipped = (summary("qwen3-8b"), summary("qwen3-8b/many"))
    found = proposal(state(*shipped, discovered=Discovered(servers=(OLLAMA,))), SetupStep.ATTACH)
    assert "ollama-qwen3-8b.yaml" in found.subjects
    assert "qwen3-8b.yaml" not in found.subjects
    attached = summary("ollama-qwen3-8b", engine=EngineKind.OPENAI)
    again = state(*shipped, attached, discovered=Discovered(servers=(OLLAMA,)), own_files=set(found.subjects))
    assert proposal(again, SetupStep.ATTACH).outlook is StepOutlook.DONE
    assert first_profile(again) == (attached, "a server that runs has it")
