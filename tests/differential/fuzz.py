"""schemathesis before the gateway: no request that fits a description, nor one that just does not, may meet a 500 of ours.

    .venv/bin/python tests/differential/fuzz.py [--only api,openai] [--max-time SECONDS] [--seed N]

Two descriptions are fuzzed: our own (`/api/openapi.json`), with its answers' schemas checked too; and OpenAI's and
Anthropic's requests, described by the types of their SDKs. Behind the gateway is the simulated engine, which any model's name means.
The first run installs schemathesis into a folder of its own in the user's cache. Not part of the test suite.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, cast

from anthropic.types import message_count_tokens_params, message_create_params
from openai.types import completion_create_params, embedding_create_params
from openai.types.chat import completion_create_params as chat_create_params
from openai.types.responses import response_create_params
from pydantic import TypeAdapter

sys.path.insert(0, str(Path(__file__).parent))
import ground

PROFILE = """\
profile: tiny
about: simulated
engine: sim
context: 8192
sim: {load_s: 0.2, time_scale: 200, memory_gib: 0.1}
memory: {weights_gib: 0.1, kv_gib: 0, overhead_gib: 0, source: invented}
"""
BODIES: dict[str, Any] = {
    "/v1/chat/completions": chat_create_params.CompletionCreateParams,
    "/v1/completions": completion_create_params.CompletionCreateParams,
    "/v1/responses": response_create_params.ResponseCreateParams,
    "/v1/embeddings": embedding_create_params.EmbeddingCreateParams,
    "/v1/messages": message_create_params.MessageCreateParams,
    "/v1/messages/count_tokens": message_count_tokens_params.MessageCountTokensParams,
}
CONFIG = """\
[checks]
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "503", "507"]
"""
"""503 is "come back", with Retry-After, and 507 "there is no memory for it": answers, not faults."""
ENDS_THE_RUN = "/api/shutdown"
NEVER_ENDS = "/api/events"


def main() -> int:
    """Both, and 1 if either found something."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="api,openai")
    parser.add_argument("--max-time", type=int, default=60, help="seconds for each")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    home = ground.environment(Path(__file__).with_name("schemathesis.txt"))
    options = [f"--max-time={args.max_time}", f"--seed={args.seed}", "--request-timeout=30", "--continue-on-failure"]
    worst = 0
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        (root / "schemathesis.toml").write_text(CONFIG)
        with ground.daemon(root, {"tiny": PROFILE}, model_names={"*": "tiny"}, body_s=2) as address:
            runs = {"api": own(address), "openai": theirs(root, address)}
            for name in args.only.split(","):
                argv = [home / "venv/bin/schemathesis", "run", *runs[name], *options]
                worst = max(worst, subprocess.run([*map(str, argv)], cwd=root, check=False).returncode)
    return worst


def own(address: str) -> list[str]:
    """Our control API, as it describes itself."""
    checks = "not_a_server_error,response_schema_conformance,content_type_conformance"
    left_out = [f"--exclude-path={path}" for path in (ENDS_THE_RUN, NEVER_ENDS)]
    return [f"{address}/api/openapi.json", f"--url={address}", f"--checks={checks}", *left_out]


def theirs(root: Path, address: str) -> list[str]:
    """What the SDKs can send."""
    file = root / "sdks.json"
    file.write_text(json.dumps(described()))
    return [str(file), f"--url={address}", "--checks=not_a_server_error"]


def described() -> dict[str, Any]:
    """An OpenAPI description of the routes that take these bodies."""
    given = [(path, "validation", TypeAdapter(cast("type", body))) for path, body in BODIES.items()]
    schemas, shared = TypeAdapter.json_schemas(given, ref_template="#/components/schemas/{model}")
    paths = {
        path: {
            "post": {
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": schemas[path, "validation"]}},
                },
                "responses": {"default": {"description": "Any"}},
            }
        }
        for path in BODIES
    }
    info = {"title": "What the SDKs send", "version": "1"}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": shared.get("$defs", {})}}


if __name__ == "__main__":
    sys.exit(main())
