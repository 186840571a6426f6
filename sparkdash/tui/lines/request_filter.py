"""Filter of past requests as a person types it: `client:codex status:5xx ttft>2s out>100 words`.

Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sparkdash.domain.lease import Request

_NAMED = re.compile(r"(client|profile|status|finish):(\S+)")
_GREATER = re.compile(r"(ttft|wait|took|out|prompt)>(\d+(?:\.\d+)?)(ms|s|m|h|k)?")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "k": 1000.0, None: 1.0}
HELP = "client:codex  profile:gpt-oss-120b  status:5xx  ttft>2s  wait>10s  took>1m  out>1k"


@dataclass(frozen=True, slots=True)
class RequestFilter:
    """Conditions that a request must meet; None and empty: any."""

    client: str | None = None
    profile: str | None = None
    status: str | None = None
    """An HTTP status, a class such as 5xx, or done, failed, gone."""
    finish: str | None = None
    least: tuple[tuple[str, float], ...] = ()
    """Figures that must be greater."""
    words: str = ""

    @property
    def exact_status(self) -> str | None:
        """The status, where the daemon can look for it by itself."""
        return None if self.status is None or "x" in self.status else self.status

    @property
    def min_ttft(self) -> float | None:
        """Least seconds to the first token."""
        return next((value for name, value in self.least if name == "ttft"), None)

    def fits(self, one: Request) -> bool:
        """Whether the request meets every condition."""
        named = ((self.client, one.client), (self.profile, one.profile), (self.finish, one.finish_reason))
        if any(want is not None and want.lower() not in (has or "").lower() for want, has in named):
            return False
        if self.status is not None and not _has_status(one, self.status.lower()):
            return False
        return self._has_figures(one) and self._has_words(one)

    def _has_figures(self, one: Request) -> bool:
        figures = request_figures(one)
        return all((figures.get(name) or 0.0) > value for name, value in self.least)

    def _has_words(self, one: Request) -> bool:
        text = f"{one.id} {one.client} {one.profile} {one.route} {one.finish_reason} {one.error} {one.key}".lower()
        return all(word in text for word in self.words.lower().split())


def parse_filter(text: str) -> RequestFilter:
    """Read a filter; what is no condition is looked for as words."""
    named = dict(_NAMED.findall(text))
    least = tuple((name, float(value) * _UNITS[unit or None]) for name, value, unit in _GREATER.findall(text))
    words = " ".join(_GREATER.sub("", _NAMED.sub("", text)).split())
    return RequestFilter(
        client=named.get("client"), profile=named.get("profile"), status=named.get("status"),
        finish=named.get("finish"), least=least, words=words,
    )  # fmt: skip


def request_figures(one: Request) -> dict[str, float | None]:
    """Return the figures that a filter compares, seconds and tokens."""
    waited = one.granted_at - one.started_at if one.granted_at is not None else None
    took = one.finished_at - one.started_at if one.finished_at is not None else None
    return {
        "ttft": one.ttft_s, "wait": waited, "took": took, "out": one.completion_tokens, "prompt": one.prompt_tokens,
    }  # fmt: skip


def _has_status(one: Request, want: str) -> bool:
    if want == one.state.value:
        return True
    return one.status is not None and re.fullmatch(re.escape(want).replace("x", r"\d"), str(one.status)) is not None
