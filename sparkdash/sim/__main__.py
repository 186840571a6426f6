"""`python -m sparkdash.sim --port N --profile-json JSON [--worker]`: one simulated engine, or its worker.

Exit codes: 0 after SIGTERM, 1 when it dies or its port is taken, 2 when it was called wrongly.
"""

import argparse
import asyncio
import sys

from pydantic import ValidationError

from sparkdash.domain.profile import Profile
from sparkdash.errors import SparkdashError, expected
from sparkdash.sim.process import run_process, run_worker


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sparkdash.sim", description="A simulated engine on 127.0.0.1.")
    parser.add_argument("--port", type=int, required=True, help="0 picks a free one")
    parser.add_argument("--profile-json", required=True, help="a Profile as JSON; its `sim` says how to behave")
    parser.add_argument("--worker", action="store_true", help="a rank on another node: it serves nobody")
    given = parser.parse_args()
    run = run_worker if given.worker else run_process
    try:
        return asyncio.run(run(Profile.model_validate_json(given.profile_json), given.port))
    except ValidationError as error:
        first = error.errors()[0]
        sys.stderr.write(f"--profile-json is no profile: {'.'.join(map(str, first['loc']))}: {expected(first)}\n")
    except SparkdashError as error:
        sys.stderr.write(f"{error.text()}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
