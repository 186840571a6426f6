"""Have the real vLLM's own code count the prompts of tests/data/count/cases.json, and write its counts into that file.

    tests/real/.engine/venv/bin/python tests/real/counts.py

Runs in the real engine's own environment; no model is loaded. null: vLLM refuses the request.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from vllm.config import ModelConfig, VllmConfig
from vllm.entrypoints.anthropic.protocol import AnthropicCountTokensRequest
from vllm.entrypoints.anthropic.serving import AnthropicServingMessages
from vllm.exceptions import VLLMValidationError
from vllm.renderers.online_renderer import OnlineRenderer
from vllm.renderers.registry import renderer_from_config

HERE = Path(__file__).parent
DATA = HERE.parent / "data" / "count"


def serving(config: ModelConfig, template: str) -> AnthropicServingMessages:
    """What answers /v1/messages/count_tokens in a server with that --chat-template, without the rest of the server."""
    renderer = renderer_from_config(VllmConfig(model_config=config))
    online = OnlineRenderer(
        config,
        renderer,
        request_logger=None,
        chat_template=template,
        chat_template_content_format="auto",
        enable_auto_tools=True,
        tool_parser="hermes",
    )
    made = AnthropicServingMessages.__new__(AnthropicServingMessages)
    made.model_config = config
    made.online_renderer = online
    made.render_chat_request = online.render_chat
    made._merge_inline_system = made._should_merge_inline_system(online)
    made._disabled_thinking_effort = None
    return made


async def main() -> None:
    file = DATA / "cases.json"
    cases = json.loads(file.read_text("utf-8"))
    config = ModelConfig(model=str(HERE / ".engine" / "tiny-qwen3"), tokenizer=str(DATA), max_model_len=4096)
    for name, template in cases["templates"].items():
        engine = serving(config, template)
        for asked, request in cases["requests"].items():
            try:
                told = await engine.count_tokens(AnthropicCountTokensRequest(model="m", **request))
            except VLLMValidationError:
                told = None
            cases["counts"].setdefault(name, {})[asked] = told and told.input_tokens
    file.write_text(json.dumps(cases, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    asyncio.run(main())
