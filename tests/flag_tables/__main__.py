"""Make an engine's flag table: `python -m tests.flag_tables vllm 0.31=TREE 0.32=TREE …`, versions oldest first.

A tree is a folder with the engine's sources as its repository or wheel has them (`vllm/`, `sglang/`, `tensorrt_llm/`,
`common/arg.cpp`). Nothing of it is run. The table goes to sparkdash/engines/ENGINE/flags.json.
"""

import json
import sys
from pathlib import Path

from tests.flag_tables import llamacpp, merge, sglang, trtllm, vllm

READERS = {"vllm": vllm.flags, "sglang": sglang.flags, "llamacpp": llamacpp.flags, "trtllm": trtllm.flags}
SOURCES = {
    "vllm": "vllm/engine/arg_utils.py, vllm/config, and cli_args.py of the server",
    "sglang": "sglang/srt/server_args.py, sglang/srt/arg_groups",
    "llamacpp": "llama.cpp/common/arg.cpp",
    "trtllm": "tensorrt_llm/commands/serve.py",
}
INSTEAD = Path(__file__).with_name("instead.json")
TABLES = Path(__file__).parents[2] / "sparkdash/engines"


def main(engine: str, *given: str) -> None:
    versions = {}
    for one in given:
        version, _, tree = one.partition("=")
        versions[version] = READERS[engine](Path(tree))
        print(f"{engine} {version}: {len(versions[version])} flags")
    rows = merge.merged(versions, json.loads(INSTEAD.read_text())[engine])
    file = TABLES / engine / "flags.json"
    file.write_text(merge.dumped(engine, SOURCES[engine], list(versions), rows))
    print(f"{file}: {len(rows)} flags, {file.stat().st_size} bytes")


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in READERS:
        sys.exit(__doc__)
    main(*sys.argv[1:])
