"""`python -m sparkdash.gateway.count --fd N`: the counter, a child process of the daemon.

Owns: the answers to the gateway, and the memory limit for strangers' templates. Counts run one after the other: most
take milliseconds, and the gateway ends one that does not stop.
"""

from __future__ import annotations

import os
import resource

from sparkdash.gateway.children.serve import JSON, Message, Receive, Send, read_body, send_answer, serve_child
from sparkdash.gateway.count import counting
from sparkdash.gateway.count.messages import CountResult, InvalidPrompt, Uncountable, decode_count_request
from sparkdash.units import GIB

MEMORY = 3 * GIB
"""Limit of address space, most of which is never touched: the largest vocabularies take a few hundred MB."""


async def app(_scope: Message, receive: Receive, send: Send) -> None:
    """Answer one count request."""
    await send_answer(send, 200, _told(await read_body(receive)).model_dump_json(exclude_none=True).encode(), JSON)


def _told(sent: bytes) -> CountResult:
    try:
        return CountResult(tokens=counting.count_tokens(*decode_count_request(sent)))
    except Uncountable as error:
        return CountResult(unknown=str(error))
    except InvalidPrompt as error:
        return CountResult(refused=str(error))
    except (MemoryError, RecursionError) as error:
        return CountResult(unknown=f"its prompt takes too much to be written ({type(error).__name__})")
    except Exception as error:  # noqa: BLE001 - a model's files can be odd in any way, and the next one's are not
        return CountResult(unknown=f"its files are of an unknown shape ({type(error).__name__}: {error})")


if __name__ == "__main__":
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the cores are for serving
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    serve_child(app, "python -m sparkdash.gateway.count")
