"""Refusals of a request, in vLLM's words and shape.

Owns: the error object and its statuses. Must not know routes.
"""

from __future__ import annotations

import json


class RefusedError(Exception):
    """Client error in a request."""

    def __init__(
        self, message: str, *, kind: str = "BadRequestError", status: int = 400, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self._error = {"message": message, "type": kind, "param": param, "code": status}

    def body(self) -> bytes:
        """Return the JSON error body."""
        return json.dumps({"error": self._error}, separators=(",", ":")).encode()


def unknown_model(name: str, served: tuple[str, ...]) -> RefusedError:
    """404 for a model that is not served."""
    return RefusedError(
        f"The model `{name}` does not exist. Valid aliases: {', '.join(served)}.",
        kind="NotFoundError",
        status=404,
        param="model",
    )


def bad_json(position: int) -> RefusedError:
    """400 for a body that is no JSON."""
    return RefusedError(
        f"1 validation error:\n  {{'type': 'json_invalid', 'loc': 'body.{position}', 'msg': 'JSON decode error'}}",
        kind="Bad Request",
        param=f"body.{position}",
    )


def too_long(context: int, prompt: int, limit: int | None) -> RefusedError:
    """400 for a prompt and answer that exceed the context. Clients recognise the sentence's beginning."""
    asked = f"{prompt + (limit or 1)} tokens ({prompt} in the messages, {limit or 1} in the completion)"
    return RefusedError(
        f"This model's maximum context length is {context} tokens. However, you requested {asked}. "
        "Please reduce the length of the messages or completion.",
        param="messages",
    )


def too_many(limit: int, context: int) -> RefusedError:
    """400 for max_tokens beyond the context."""
    return RefusedError(
        f"max_tokens={limit} cannot be greater than max_model_len={context}. Please request fewer output tokens. "
        f"(parameter=max_tokens, value={limit})",
        param="max_tokens",
    )
