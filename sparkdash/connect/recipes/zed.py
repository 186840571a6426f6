"""Zed: its llama.cpp provider, which shows how far a model has loaded.

Pure.
"""

from __future__ import annotations

from sparkdash.connect.gateway_target import GatewayTarget
from sparkdash.connect.recipe import ClientProtocol, ConfigFile, FileFormat, Recipe, Setup


def _setup(target: GatewayTarget) -> Setup:
    content = {"language_models": {"llama.cpp": {"api_url": target.root}}}
    return Setup(
        files=(ConfigFile("~/.config/zed/settings.json", FileFormat.JSON, content),),
        env={"LLAMACPP_API_KEY": target.secret} if target.key else {},
        steps=(f"Choose {target.model} in the agent panel's model list: every profile is in it, with its context.",),
    )


RECIPE = Recipe(
    "zed",
    "Zed",
    ClientProtocol.ROUTER,
    _setup,
    "zed.dev/docs/ai/use-a-local-model (2026), crates/llama_cpp; not run here",
)
