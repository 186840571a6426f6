"""llm: Simon Willison's command line tool; one more OpenAI-compatible model.

Pure.
"""

from __future__ import annotations

from sparkdash.connect.gateway_target import GatewayTarget
from sparkdash.connect.recipe import ClientProtocol, ConfigFile, FileFormat, Recipe, Setup


def _setup(target: GatewayTarget) -> Setup:
    model = {
        "model_id": f"sparkdash-{target.model.replace('/', '-')}",
        "model_name": target.model,
        "api_base": target.v1,
        "supports_tools": True,
        "supports_schema": True,
        **({"vision": True} if target.sees else {}),
        **({"api_key_name": "sparkdash"} if target.key else {}),
    }
    return Setup(
        files=(
            ConfigFile(
                "~/.config/io.datasette.llm/extra-openai-models.yaml", FileFormat.YAML, [model], same="model_id"
            ),
        ),
        steps=("llm keys set sparkdash    # asks for the key",) if target.key else (),
        run=f"llm -m {model['model_id']} 'hello'",
        notes=("It waits 600 s between bytes; sparkdash sends some every 5 s while a model loads.",),
    )


RECIPE = Recipe("llm", "llm", ClientProtocol.CHAT, _setup, "llm 0.36; llm.datasette.io/en/stable/other-models.html")
