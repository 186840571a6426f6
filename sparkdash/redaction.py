"""Redaction: masks keys and tokens, found by their form or by their name. A URL's login is never shown.

A capture of requests has forms of its own (`gateway`). One-shot commands load this: the standard library alone. Pure.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit


def is_server(url: str) -> bool:
    """Whether a URL has http(s), a host that a network may have, an existing port, and no query, fragment or space."""
    try:
        parts = urlsplit(url)
        wrong = parts.port == 0  # asking for the port is what reads it
        (parts.hostname or "").encode("idna")
    except ValueError:  # brackets without an end, no port at all, or a name that no network has
        return False
    whole = not (parts.query or parts.fragment) and url.isprintable() and " " not in url
    return parts.scheme in ("http", "https") and bool(parts.hostname) and whole and not wrong


def has_login(url: str) -> bool:
    """Whether a URL contains a login before its host."""
    return "@" in urlsplit(url).netloc


def shown_url(url: str) -> str:
    """Return the URL without what stands before an `@`, even where it is no URL at all, and without keys."""
    scheme, slashes, _ = url.rpartition("@")[0].partition("://")
    return masked(f"{scheme if slashes else ''}{slashes}***@{url.rpartition('@')[2]}" if "@" in url else url)


MASK = "***"
_FORM = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_|sk-|nvapi-|xai-|gsk_|gh[pousr]_|github_pat_|glpat-)[A-Za-z0-9_-]{16,}"
    r"|(?<![A-Za-z0-9])(?:AIza[\w-]{16,}|AKIA[0-9A-Z]{16})"
    r"|(?<=Bearer )\S{8,}|(?<=api_key': ')[^']+|(?<=api_key': \[)[^\]]+|(?<=api-key )\S+"
)
"""Tokens of Hugging Face, OpenAI and its like, NVIDIA, xAI, Groq, GitHub, GitLab, Google, Amazon; and the value where
vLLM's log, an authorization header or a command line has its key.
"""
_VARIABLE = re.compile(r"(?:^|_)(?:TOKEN|API_?KEY|KEY|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(?:_|$)", re.IGNORECASE)
_FLAG = re.compile(r"api[_-]?key|(?:hf|auth|access)[_-]token|^-*token$|^-*creds$|password|secret", re.IGNORECASE)
"""Name of a flag with a secret; narrower than for variables, as engines have flags such as `stop-token`."""
_HARMLESS = re.compile(r"(?i:|none|null|empty|dummy|unused|true|false|auto|\d[\d.]*|[/~{$].*)")
"""Values that are no secret under such a name: placeholders of local servers, numbers, paths, references."""

IsSecretName = Callable[[str], bool]


def is_secret_variable(name: str) -> bool:
    return bool(_VARIABLE.search(name))


def is_secret_flag(name: str) -> bool:
    return bool(_FLAG.search(name))


def never(_name: str) -> bool:
    """Reject every name: for texts whose names mark no secret, as the keys of a request's body."""
    return False


def is_secret(text: str, name: str, by_name: IsSecretName) -> bool:
    """Whether this text is a secret, by its own form or as the value of `name`."""
    return bool(_FORM.search(text)) or (by_name(name) and not _HARMLESS.fullmatch(text))


_NAMED = re.compile(
    r"((?<![A-Za-z0-9])(?:\w+[_-])?(?:TOKEN|API[_-]?KEY|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(?:_\w+)?="
    r"|[?&](?:key|sig)=)"
    r"(?![\d.]+\b|[/~{$<*]|none\b|null\b|true\b|false\b)[^\s'\",;&\])}]{4,}",
    re.IGNORECASE,
)
"""Value behind the name of a secret: `HF_TOKEN=…`, `--api-key=…`, `?token=…`."""
_FLAGGED = re.compile(
    r"((?<![\w-])--?(?:token|creds|[\w-]*(?:api[_-]?key|(?:hf|auth|access)[_-]token|password|passwd|secret)) )"
    r"(?![-/~{$<]|none\b|null\b|true\b|false\b)[^\s'\",;&\])}]{4,}"
)
"""Value behind a flag for secrets, in a text with a command line in it."""
_LOGIN = re.compile(r"(?<=://)[^\s/@:]+:[^\s/@]+(?=@)")
_ADDRESS = re.compile(r"(https?://[^\s/?#'\"]+)/[^\s'\"]+")
_known: set[str] = set()


def remember_secrets(environment: Mapping[str, str]) -> None:
    """Have the values of secret variables masked wherever they appear; a command's error may repeat them."""
    _known.update(value for name, value in environment.items() if is_secret_variable(name) and len(value) >= 8)


def masked(text: str) -> str:
    """Replace every text that is a known secret, has the form of one, or stands behind the name of one."""
    for secret in _known:
        text = text.replace(secret, MASK)
    return _LOGIN.sub(MASK, _FLAGGED.sub(rf"\1{MASK}", _NAMED.sub(rf"\1{MASK}", _FORM.sub(MASK, text))))


def masked_addresses(text: str) -> str:
    """Mask as `masked`, and what follows the host of each address: of a webhook it is the secret."""
    return _ADDRESS.sub(rf"\1/{MASK}", masked(text))


MASKED_DEPTH = 50
"""Levels of a value that are looked through; a client may send some hundred thousand."""


def masked_values(value: Any, by_name: IsSecretName = never, name: str = "", levels: int = MASKED_DEPTH) -> Any:
    """Mask the strings in nested lists and mappings, and whole what is nested deeper than `levels`.

    Each key of a mapping is the name of its value.
    """
    if isinstance(value, str):
        return MASK if by_name(name) and is_secret(value, name, by_name) else masked(value)
    if isinstance(value, dict | list | tuple) and not levels:
        return MASK
    if isinstance(value, dict):
        return {key: masked_values(item, by_name, str(key), levels - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(masked_values(item, by_name, name, levels - 1) for item in value)
    return value


def masked_command(words: Iterable[str]) -> tuple[str, ...]:
    """Mask the words of a command line: by their form, and every value of a flag that holds secrets.

    vLLM takes several keys behind one `--api-key`.
    """
    found: list[str] = []
    flag = ""
    for word in words:
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            found.append(MASK if is_secret(word, flag, is_secret_flag) else word)
            continue
        flag = "" if equals else name
        hides = bool(equals) and is_secret(value, name, is_secret_flag)
        found.append(f"{name}={MASK}" if hides else masked(word))
    return tuple(found)
