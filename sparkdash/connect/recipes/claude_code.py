"""Claude Code: a settings file of its own, given with --settings, so that the usual login is left as it is.

Pure.
"""

from __future__ import annotations

from sparkdash.connect.gateway_target import LONG_MS, GatewayTarget
from sparkdash.connect.recipe import ClientProtocol, ConfigFile, FileFormat, Recipe, Setup

PATH = "~/.claude/sparkdash.json"


def _setup(target: GatewayTarget) -> Setup:
    models = ("OPUS", "SONNET", "FABLE")
    env = {
        "ANTHROPIC_BASE_URL": target.root,
        "ANTHROPIC_AUTH_TOKEN": target.secret,
        "ANTHROPIC_MODEL": target.model,
        **{f"ANTHROPIC_DEFAULT_{name}_MODEL": target.model for name in models},
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": "auto",
        "CLAUDE_CODE_SUBAGENT_MODEL": "inherit",
        "CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY": "1",
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(target.context),
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(target.output),
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
        "CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "API_FORCE_IDLE_TIMEOUT": "0",
        "API_TIMEOUT_MS": str(LONG_MS),
        "CLAUDE_STREAM_IDLE_TIMEOUT_MS": str(LONG_MS),
    }
    return Setup(
        files=(ConfigFile(PATH, FileFormat.JSON, {"env": env}),),
        run=f"claude --settings {PATH}",
        notes=(
            "Set all three time-outs: one alone changes nothing. They make Claude Code wait 1800 s; the default is "
            "361 s for a first byte and 600 s for a word.",
            "/model lists every profile. Subagents use the chosen model, small calls `auto` (whatever runs): no swap.",
            f"The limits are those of {target.model}. For a model with a smaller context run "
            "`sparkdash connect claude-code --model` again.",
            "Every model name is set, since Claude Code would otherwise ask for its cloud's models. It assumes a "
            "context of 1M tokens for an unknown model; CLAUDE_CODE_MAX_CONTEXT_TOKENS corrects this.",
        ),
    )


RECIPE = Recipe(
    "claude-code",
    "Claude Code",
    ClientProtocol.MESSAGES,
    _setup,
    "Claude Code 2.1.329, measured against a recording server; code.claude.com/docs/en/settings",
)
