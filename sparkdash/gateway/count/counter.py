"""TokenCounter: asks a child process for the tokens of a request whose engine is not loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path

from sparkdash.domain.profile import Profile
from sparkdash.engines.registry import adapter_of
from sparkdash.errors import AdmissionError, HostError, SparkdashError
from sparkdash.gateway.child_process import ChildProcess
from sparkdash.gateway.count.chat import CountRequest, CountResult, encode_count_request
from sparkdash.paths import PYTHON, install_command

LIMIT_S = 30.0
"""Limit of one count, the start of the child included: a template may never end."""


class TokenCounter(ChildProcess):
    """Client of the counting process; an async context manager."""

    name = "counter"
    packages = ("jinja2", "tokenizers")

    def __init__(
        self,
        folder: Path,
        idle_s: float,
        hf_home: Path,
        argv: Sequence[str] = (*PYTHON, "-m", "sparkdash.gateway.count"),
    ) -> None:
        super().__init__(folder, idle_s, argv)
        self._hf_home = hf_home

    async def tokens(self, profile: Profile, body: bytes) -> int:
        """Count the tokens of the request's prompt as the profile's own engine would.

        Raises:
            AdmissionError: 404 `not_loaded`: only the engine could tell; 400 `invalid_request`.
        """
        how = adapter_of(profile).prompting(profile)
        if isinstance(how, str):
            raise not_loaded_error(profile, how)
        if (model := profile.models.get("target")) is None:
            raise not_loaded_error(profile, "its profile names no model")
        request = CountRequest(model=model, mounts=profile.mounts, hf_home=str(self._hf_home), **how._asdict())
        try:
            sent, kind = encode_count_request(request, body), [(b"content-type", b"application/octet-stream")]
            async with asyncio.timeout(LIMIT_S), self.open("/", kind, sent) as answer:
                result = CountResult.model_validate_json(await answer.read())
        except TimeoutError:
            self.shut_down(grace_s=0)  # a busy child does not react to its closed input
            raise not_loaded_error(profile, f"counting took longer than {LIMIT_S:g} s") from None
        except SparkdashError as error:
            raise not_loaded_error(profile, error.message[:1].lower() + error.message[1:]) from None
        if result.refused is not None:
            raise AdmissionError(f"{result.refused[:1].upper()}{result.refused[1:]}.", code="invalid_request")
        if result.tokens is None:
            raise not_loaded_error(profile, result.unknown or "no reason is known")
        return result.tokens

    def not_installed_error(self) -> HostError:
        """Build the error for a missing installation; its message ends a sentence."""
        return HostError(
            f"the token counter is not installed (`{install_command('translate')}`)", code="counter_missing"
        )


def not_loaded_error(profile: Profile, why: str) -> AdmissionError:
    """Build the refusal of a count. Claude Code makes an estimate of its own after a 404."""
    return AdmissionError(
        f"{profile.name} is not loaded, and its tokens cannot be counted without its engine: {why.rstrip('.')}.",
        code="not_loaded",
        status=HTTPStatus.NOT_FOUND,
        hint="Send it a message, or start it with `sparkdash use`; counting alone loads nothing.",
    )
