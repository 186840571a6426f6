"""What of each profile is on the box, and how the daemon tells it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkdash.daemon import control_actions
from sparkdash.domain.local_files import Item, Shelf, Stock
from sparkdash.domain.profile import EngineKind, ModelRef, ProfileSummary
from sparkdash.errors import HostError
from sparkdash.settings import Settings


class Runtime:
    """One that has these images, or is ill."""

    def __init__(self, images: dict[str, int] | None, *, containerised: bool = True, name: str = "sh") -> None:
        self.name = name
        self.containerised = containerised
        self._images = images
        self.asked: list[list[str]] = []

    async def images(self, names: list[str]) -> dict[str, int]:
        self.asked.append(names)
        if self._images is None:
            raise HostError("podman does not answer.")
        return {name: self._images[name] for name in names if name in self._images}


def profile(
    name: str, *, image: str | None = "a:1", weights: tuple[ModelRef, ...] = (), simulated: bool = False
) -> Any:
    """What the list knows of one."""
    return ProfileSummary(
        name=name, about="", engine=EngineKind.VLLM, engine_version=None, image=image, serves=(), context=None,
        needs_bytes=None, nodes=1, cannot_run=None, nearest=None, published_decode_tok_s=None, published_note=None,
        speculation=None, fingerprint="f", simulated=simulated, weights=weights,
    )  # fmt: skip


async def shelf(runtime: Runtime, hf_home: Path, *profiles: Any) -> Shelf:
    """As the daemon answers."""
    supervisor = SimpleNamespace(settings=Settings(hf_home=hf_home))
    return await control_actions.stock_of_profiles(
        cast("Any", SimpleNamespace(supervisor=supervisor, parts=SimpleNamespace(runtime=runtime), others=None)),
        profiles,
    )


async def test_one_call_tells_all_images_and_simulated_profiles_need_none(tmp_path: Path) -> None:
    """Weights that came in part tell how much of them."""
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "a-00001-of-00002.safetensors").write_bytes(b"x" * 7)
    runtime = Runtime({"a:1": 5})
    half = (ModelRef(path=str(tmp_path / "m")),)
    told = await shelf(
        runtime, tmp_path, profile("p"), profile("q", image="b:1", weights=half), profile("s", simulated=True)
    )
    assert told.stock == {
        "p": Stock(image=Item(here=True, size=5)),
        "q": Stock(image=Item(here=False), weights=Item(here=False, size=7)),
    }
    assert runtime.asked == [["a:1", "b:1"]]


@pytest.mark.parametrize("runtime", [Runtime(None), Runtime({}, containerised=False)], ids=["ill", "plain processes"])
async def test_what_a_runtime_does_not_tell_is_not_known(runtime: Runtime, tmp_path: Path) -> None:
    """And is not said to be missing."""
    assert (await shelf(runtime, tmp_path, profile("p"))).stock == {"p": Stock()}


async def test_a_runtime_that_is_not_installed_has_no_image(tmp_path: Path) -> None:
    told = await shelf(Runtime(None, name="podman-of-nowhere"), tmp_path, profile("p"))
    assert told.stock == {"p": Stock(image=Item(here=False))}
