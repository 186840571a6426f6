"""Recipes of the agents that came in 2026, which take an OpenAI-compatible server of their owner's. Pure."""

from sparkdash.connect.recipe import LONG_S, VARIABLE, ConfigFile, FileFormat, GatewayTarget, Launch, Recipe, Setup


def _crush(target: GatewayTarget) -> Setup:
    model = {
        "id": target.model,
        "name": target.model,
        "context_window": target.context,
        "default_max_tokens": target.output,
        **({"supports_attachments": True} if target.sees else {}),
    }
    provider = {
        "name": "sparkdash",
        "type": "openai-compat",
        "base_url": target.v1,
        "api_key": f"${VARIABLE}" if target.key else target.secret,
        "models": [model],
    }
    use = {"provider": "sparkdash", "model": target.model}
    content = {"providers": {"sparkdash": provider}, "models": {"large": use, "small": use}}
    schema = {"$schema": "https://charm.land/crush.json"}
    return Setup(
        files=(ConfigFile("~/.config/crush/crush.json", FileFormat.JSON, content, same="id", seed=schema),),
        env=target.env,
        run="crush",
        notes=("small is the same model, so that titles never cause a swap.",),
    )


def _droid(target: GatewayTarget) -> Setup:
    model = {
        "model": target.model,
        "displayName": f"{target.model} (sparkdash)",
        "baseUrl": target.v1,
        "apiKey": f"${{{VARIABLE}}}" if target.key else target.secret,
        "provider": "generic-chat-completion-api",
        "maxContextLimit": target.context,
        "maxOutputTokens": target.output,
        **({} if target.sees else {"noImageSupport": True}),
    }
    return Setup(
        files=(ConfigFile("~/.factory/settings.json", FileFormat.JSON, {"customModels": [model]}, same="displayName"),),
        env=target.env,
        launch=Launch(("droid", "--settings", "{file}"), target.env),
        steps=(f"droid, then /model: {target.model} (sparkdash)",),
        notes=("Without a terminal: `droid exec -m MODEL`; a wrong name lists those that it has. It needs no login.",),
    )


def _goose(target: GatewayTarget) -> Setup:
    values = {
        "GOOSE_PROVIDER": "openai",
        "GOOSE_MODEL": target.model,
        "GOOSE_FAST_MODEL": target.model,
        "GOOSE_CONTEXT_LIMIT": str(target.context),
        "GOOSE_MAX_TOKENS": str(target.output),
        "OPENAI_HOST": target.root,
        "OPENAI_BASE_PATH": "v1/chat/completions",
        "OPENAI_TIMEOUT": str(LONG_S),
    }
    key = {"OPENAI_API_KEY": target.secret}
    return Setup(
        files=(ConfigFile("~/.config/goose/config.yaml", FileFormat.YAML, values),),
        env=key,
        run="goose session",
        launch=Launch(("goose",), {**values, **key}),
        notes=(
            "OPENAI_HOST is without /v1: the path stands in OPENAI_BASE_PATH. The key is read from its variable or the "
            "keyring (`goose configure`), never from the file.",
            "OPENAI_TIMEOUT: 600 s otherwise. GOOSE_FAST_MODEL keeps small calls on the same model: no swap.",
        ),
    )


def _hermes(target: GatewayTarget) -> Setup:
    model = {
        "provider": "custom",
        "default": target.model,
        "base_url": target.v1,
        "api_key": f"${{{VARIABLE}}}" if target.key else target.secret,
        "context_length": target.context,
        "max_tokens": target.output,
    }
    return Setup(
        files=(ConfigFile("~/.hermes/config.yaml", FileFormat.YAML, {"model": model}),),
        env=target.env,
        run="hermes",
        launch=Launch(("hermes",), {"HERMES_MANAGED_DIR": "{folder}", **target.env}),
        notes=(
            "Without max_tokens it asks for an answer as long as the whole context, which engines refuse.",
            "It wants a model with 64000 tokens of context or more.",
        ),
    )


def _openclaw(target: GatewayTarget) -> Setup:
    model = {
        "id": target.model,
        "name": target.model,
        "reasoning": False,
        "input": ["text", "image"] if target.sees else ["text"],
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        "contextWindow": target.context,
        "maxTokens": target.output,
    }
    provider = {
        "baseUrl": target.v1,
        "apiKey": f"${{{VARIABLE}}}" if target.key else target.secret,
        "api": "openai-completions",
        "timeoutSeconds": LONG_S,
        "models": [model],
    }
    primary = {"model": {"primary": f"sparkdash/{target.model}"}}
    content = {"models": {"mode": "merge", "providers": {"sparkdash": provider}}, "agents": {"defaults": primary}}
    return Setup(
        files=(ConfigFile("~/.openclaw/openclaw.json", FileFormat.JSON, content, same="id"),),
        env=target.env,
        run="openclaw",
        launch=Launch(("openclaw",), {"OPENCLAW_CONFIG_PATH": "{file}", **target.env}),
        notes=("Its gateway reads the file again by itself; a key's variable must be set where the gateway runs.",),
    )


def _openhands(target: GatewayTarget) -> Setup:
    env = {
        "LLM_MODEL": f"hosted_vllm/{target.model}",
        "LLM_BASE_URL": target.v1,
        "LLM_API_KEY": target.secret,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    return Setup(
        env=env,
        run="openhands --override-with-envs",
        launch=Launch(("openhands", "--override-with-envs"), env),
        notes=(
            "Without --override-with-envs it ignores the variables. They are not stored.",
            "It streams nothing and gives up after 300 s: have a large model loaded first (`sparkdash use`).",
        ),
    )


def _roo(target: GatewayTarget) -> Setup:
    return Setup(
        steps=(
            "Open Roo Code's settings (the gear), Providers.",
            "API Provider: OpenAI Compatible",
            f"Base URL: {target.v1}",
            f"API Key: {target.secret}",
            f"Model: {target.model}",
            f"Model Configuration: Context Window Size {target.context}, Max Output Tokens {target.output}"
            + (", Image Support" if target.sees else ""),
            f"VS Code's settings.json: roo-cline.apiRequestTimeout {LONG_S}",
        ),
        notes=("apiRequestTimeout is in seconds; the default is 600.",),
    )


RECIPES = (
    Recipe("crush", "Crush", _crush, "charmbracelet/crush, README.md, 2026; not run here"),
    Recipe("droid", "Factory's Droid", _droid, "Droid 0.215.0, run; docs.factory.ai/model-independence/byok"),
    Recipe(
        "goose",
        "Goose",
        _goose,
        "aaif-goose/goose, documentation/docs/guides/environment-variables.md, 2026; not run here",
    ),
    Recipe("hermes", "Hermes Agent", _hermes, "Hermes Agent 0.19.0, run; its website/docs/user-guide/configuration.md"),
    Recipe("openclaw", "OpenClaw", _openclaw, "OpenClaw 2026.9.6, run; docs.openclaw.ai/providers/vllm"),
    Recipe("openhands", "OpenHands", _openhands, "OpenHands 1.16.0, run; OpenHands-CLI's README.md"),
    Recipe("roo", "Roo Code", _roo, "docs.roocode.com/providers/openai-compatible, 2026; not run here"),
)
