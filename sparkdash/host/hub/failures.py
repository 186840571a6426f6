"""Failures between a box and the hub, as errors with a remedy.

Owns: the wording, and the hub's address. Rule: the library's own messages are never shown, as they contain signed
addresses.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sparkdash import redaction
from sparkdash.errors import HostError

KEPT = "The fetched part is kept: the same command resumes it."
_LOGIN = "log in with `hf auth login` or set HF_TOKEN"


def hub_url() -> str | None:
    """Return the hub's address by HF_ENDPOINT; None for the usual one.

    Raises:
        HostError: code `hub_url_invalid`.
    """
    url = os.environ.get("HF_ENDPOINT") or None
    if url is not None and not (redaction.is_server(url) and url.isascii()):
        raise HostError(
            f"HF_ENDPOINT is {redaction.shown_url(url)!r}, which is not a URL of a hub.",
            code="hub_url_invalid",
            hint="Use a form like https://huggingface.co, or unset it for that address.",
        )
    return url


@contextmanager
def as_host_error(repo: str, revision: str) -> Iterator[None]:
    """Turn errors of huggingface_hub, which is loaded anyway, into HostErrors; others pass."""
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    network: Any = HfHubHTTPError.__mro__[1]  # the base of every error of the HTTP client that this library uses
    try:
        yield
    except HfHubHTTPError as error:
        raise _refused(error, repo, revision) from None
    except network as error:
        raise _unreachable(type(error).__name__) from None
    except OSError as error:
        raise _on_disk(error, repo) from None
    except HFValidationError:
        raise HostError(
            f"{repo!r} cannot be the name of a model on the hub.",
            code="weights_unknown",
            hint="Correct `hf` in the profile: its form is owner/name.",
        ) from None


def _refused(error: Any, repo: str, revision: str) -> HostError:
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    status = error.response.status_code
    if isinstance(error, GatedRepoError):
        return HostError(
            f"{repo} is gated, and you may not read it yet.",
            code="weights_gated",
            hint=f"Accept its terms on its page on the hub, then {_LOGIN}.",
        )
    if isinstance(error, RevisionNotFoundError):
        return HostError(
            f"{repo} has no revision {revision}.", code="weights_unknown", hint="Correct `revision` in the profile."
        )
    if isinstance(error, RepositoryNotFoundError):
        return HostError(
            f"The hub has no model {repo}, or does not show it to you.",
            code="weights_unknown",
            hint=f"Correct `hf` in the profile; if the model is private, {_LOGIN}.",
        )
    if status in (401, 403):
        return HostError(
            f"The hub serves {repo} only with a valid token ({status}).",
            code="token_refused",
            hint=f"Make a new token on the hub, then {_LOGIN}.",
        )
    return HostError(f"The hub answered {status} for {repo}.", code="hub_unreachable", hint=f"Try later. {KEPT}")


def _unreachable(what: str) -> HostError:
    return HostError(
        f"The hub cannot be reached ({what}).",
        code="hub_unreachable",
        hint=f"Check this box's network; `--offline` lists what is missing. {KEPT}",
    )


def _on_disk(error: OSError, repo: str) -> HostError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return HostError(
            f"The disk filled up while fetching {repo}.", code="disk_full", hint=f"Free some of it. {KEPT}"
        )
    if error.errno is not None:
        return HostError(
            f"{error.filename or 'The cache'} cannot be written: {error.strerror}.",
            code="cache_unusable",
            hint="Take ownership of the folder, or move the cache with `hf_home` in config.toml.",
        )
    return _unreachable("it stopped answering")  # the library raises a plain OSError after its retries
