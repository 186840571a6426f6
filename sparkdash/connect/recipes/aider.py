"""aider: litellm inside; reads its YAML from the home folder."""

from __future__ import annotations

from sparkdash.connect.place import LONG_S, Place
from sparkdash.connect.recipe import File, Format, Protocol, Recipe, Setup


def _setup(place: Place) -> Setup:
    model = f"openai/{place.model}"
    return Setup(
        files=(
            File(
                "~/.aider.conf.yml",
                Format.YAML,
                {
                    "model": model,
                    "weak-model": model,
                    "openai-api-base": place.v1,
                    "openai-api-key": place.secret,
                    "timeout": LONG_S,
                },
            ),
            File(
                "~/.aider.model.metadata.json",
                Format.JSON,
                {
                    model: {
                        "max_input_tokens": place.context,
                        "max_output_tokens": place.output,
                        "max_tokens": place.output,
                        "litellm_provider": "openai",
                        "mode": "chat",
                        **({"supports_vision": True} if place.sees else {}),
                    }
                },
            ),
        ),
        run="aider",
        notes=(
            "Without `timeout` it gives up after 600 s of silence.",
            "`weak-model` keeps commit messages on the same model: no swap for them.",
        ),
    )


RECIPE = Recipe(
    "aider", "aider", Protocol.CHAT, _setup, "aider 0.86.2; aider.chat/docs/config/options, adv-model-settings"
)
