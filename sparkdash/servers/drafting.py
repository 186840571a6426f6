"""Speculation of known servers, as their flags in a profile say it.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparkdash.domain.profile import ArgValue

Args = Mapping[str, ArgValue]


def atlas_speculation(args: Args) -> str | None:
    """Describe Atlas's: a drafting model, the model's own heads, or what its flag alone says."""
    if args.get("dflash"):
        return _with_count("dflash", args.get("dflash-gamma"))
    if args.get("self-speculative"):
        return _with_count("self-speculative", args.get("num-drafts"))
    if not args.get("speculative"):
        return None
    has_heads = any(key.startswith("mtp-") for key in args)
    return _with_count("mtp" if has_heads else "speculative", args.get("num-drafts"))


def lucebox_speculation(args: Args) -> str | None:
    """Describe LuceBox's: a drafting model, whose drafts may be a tree of so many tokens."""
    if args.get("ddtree"):
        budget = args.get("ddtree-budget")
        return "ddtree" if budget is None else f"ddtree budget={budget}"
    return "dflash" if args.get("draft") else None


def _with_count(method: str, drafts: ArgValue | None) -> str:
    return method if drafts is None else f"{method} k={drafts}"
