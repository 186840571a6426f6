"""Zed: its llama.cpp provider, which shows how far a model has loaded."""

from __future__ import annotations

from sparkdash.connect.place import Place
from sparkdash.connect.recipe import File, Format, Protocol, Recipe, Setup


def _setup(place: Place) -> Setup:
    content = {"language_models": {"llama.cpp": {"api_url": place.root}}}
    return Setup(
        files=(File("~/.config/zed/settings.json", Format.JSON, content),),
        env={"LLAMACPP_API_KEY": place.secret} if place.key else {},
        steps=(f"Choose {place.model} in the agent panel's model list: every profile is in it, with its context.",),
    )


RECIPE = Recipe(
    "zed", "Zed", Protocol.ROUTER, _setup, "zed.dev/docs/ai/use-a-local-model (2026), crates/llama_cpp; not run here"
)
