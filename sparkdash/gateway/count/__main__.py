"""`python -m sparkdash.gateway.count --fd N`: the counter, a process beside the daemon.

Owns: what the gateway is answered, and how much memory a stranger's template can take. One count after the other: most take
milliseconds, and one that never ends is the gateway's to end.
"""

from __future__ import annotations

import os
import resource

from sparkdash.gateway.children.serve import JSON, Message, Receive, Send, body_of, main, whole
from sparkdash.gateway.count import counting
from sparkdash.gateway.count.order import Refused, Told, Uncountable, opened
from sparkdash.units import GIB

MEMORY = 3 * GIB
"""Of addresses, most of which are never touched: the largest vocabularies take a few hundred MB."""


async def app(_scope: Message, receive: Receive, send: Send) -> None:
    """One order."""
    await whole(send, 200, _told(await body_of(receive)).model_dump_json(exclude_none=True).encode(), JSON)


def _told(sent: bytes) -> Told:
    try:
        return Told(tokens=counting.tokens(*opened(sent)))
    except Uncountable as error:
        return Told(unknown=str(error))
    except Refused as error:
        return Told(refused=str(error))
    except (MemoryError, RecursionError) as error:
        return Told(unknown=f"its prompt takes too much to be written ({type(error).__name__})")
    except Exception as error:  # noqa: BLE001 - a model's files can be odd in any way, and the next one's are not
        return Told(unknown=f"its files are of an unknown shape ({type(error).__name__}: {error})")


if __name__ == "__main__":
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a box that serves has better things for its cores
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    main(app, "python -m sparkdash.gateway.count")
