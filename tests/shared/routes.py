"""Every route of a gateway, as its own tables have them."""

from sparkdash.gateway.admission import access
from sparkdash.gateway.apis import llama_swap, pages
from sparkdash.gateway.control.app import HANDLERS
from sparkdash.gateway.control.openapi import describe
from sparkdash.gateway.protocol import route

Route = tuple[str, str]
"""A method and a path; what a path leaves open is in capitals."""
PLACEHOLDERS = {"{name}": "NAME", "{run}": "RUN", "{request_id}": "ID"}
READ_OLLAMA = ("version", "tags", "ps")


def control_routes() -> set[Route]:
    """As they are described; the description is a route itself."""
    paths = describe(HANDLERS)["paths"]
    found = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    return found | {("GET", "/api/openapi.json")}


def every_route() -> set[Route]:
    """With every method but HEAD, which is a GET without its body."""
    found = {("GET", path) for path in access.ALIVE}
    found |= {(method, shown(path)) for method, path in control_routes()}
    found |= {("POST", path) for path in route._PLAIN}
    for path, methods in route._AT_ROOT.items():
        found |= {(method, path) for method in methods - {"HEAD"}}
    reads = {f"/api/{word}" for word in READ_OLLAMA}
    found |= {("GET" if path in reads else "POST", path) for path in route.OLLAMA}
    found |= {("GET", route.METRICS)} | {("GET", pages.PAGE), ("GET", f"{pages.PAGE}/FILE")}
    found |= {("GET", "/v1/models"), ("GET", "/v1/models/NAME"), ("GET", llama_swap.RUNNING)}
    found |= {("GET", path) for path in ("/unload", "/unload/NAME", "/upstream/NAME")}
    return found | {(method, path) for method in ("GET", "POST") for path in ("/v1/PATH", "/upstream/PROFILE/PATH")}


def shown(path: str) -> str:
    """A path of the description with its open parts in capitals."""
    for given, capitals in PLACEHOLDERS.items():
        path = path.replace(given, capitals)
    return path
