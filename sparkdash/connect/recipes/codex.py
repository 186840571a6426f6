"""Codex: a profile file of its own beside config.toml (0.134 and later), given with --profile.

Pure.
"""

from __future__ import annotations

from sparkdash.connect.gateway_target import LONG_MS, VARIABLE, GatewayTarget
from sparkdash.connect.recipe import ClientProtocol, ConfigFile, FileFormat, Recipe, Setup


def _setup(target: GatewayTarget) -> Setup:
    provider = {
        "name": "sparkdash",
        "base_url": target.v1,
        "wire_api": "responses",
        "stream_idle_timeout_ms": LONG_MS,
        **({"env_key": VARIABLE} if target.key else {}),
    }
    content = {
        "model": target.model,
        "model_provider": "sparkdash",
        "model_context_window": target.context,
        "web_search": "disabled",
        "agents": {"enabled": False},
        "model_providers": {"sparkdash": provider},
    }
    return Setup(
        files=(ConfigFile("~/.codex/sparkdash.config.toml", FileFormat.TOML, content),),
        env={VARIABLE: target.secret} if target.key else {},
        run="codex --profile sparkdash",
        notes=(
            "stream_idle_timeout_ms: the default is 300 s. model_context_window: the default for an unknown model is "
            "272000 tokens.",
            "web_search and agents are off: gpt-oss under vLLM and SGLang refuses their tool types.",
        ),
    )


RECIPE = Recipe(
    "codex",
    "Codex",
    ClientProtocol.RESPONSES,
    _setup,
    "Codex 0.169.0, measured against a recording server; developers.openai.com/codex/config-advanced",
)
