"""Clients of the gateway: each one's recipe, and all of them by name."""

import json
from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from sparkdash.connect import agents, libraries
from sparkdash.connect.recipe import (
    LONG_MS,
    LONG_S,
    VARIABLE,
    ClientProtocol,
    ConfigFile,
    FileFormat,
    GatewayTarget,
    Launch,
    Recipe,
    Setup,
)
from sparkdash.errors import AdmissionError


def _aider(target: GatewayTarget) -> Setup:
    model = f"openai/{target.model}"
    return Setup(
        files=(
            ConfigFile(
                "~/.aider.conf.yml",
                FileFormat.YAML,
                {
                    "model": model,
                    "weak-model": model,
                    "openai-api-base": target.v1,
                    "openai-api-key": target.secret,
                    "timeout": LONG_S,
                },
            ),
            ConfigFile(
                "~/.aider.model.metadata.json",
                FileFormat.JSON,
                {
                    model: {
                        "max_input_tokens": target.context,
                        "max_output_tokens": target.output,
                        "max_tokens": target.output,
                        "litellm_provider": "openai",
                        "mode": "chat",
                        **({"supports_vision": True} if target.sees else {}),
                    }
                },
            ),
        ),
        run="aider",
        launch=Launch(
            ("aider",),
            {
                "AIDER_MODEL": model,
                "AIDER_WEAK_MODEL": model,
                "AIDER_OPENAI_API_BASE": target.v1,
                "AIDER_OPENAI_API_KEY": target.secret,
                "AIDER_TIMEOUT": str(LONG_S),
            },
        ),
        notes=(
            "Without `timeout` aider gives up after 600 s of silence.",
            "`weak-model` keeps commit messages on the same model, so they never cause a swap.",
        ),
    )


_CLAUDE_FILE = "~/.claude/sparkdash.json"


def _claude_code(target: GatewayTarget) -> Setup:
    env = {
        "ANTHROPIC_BASE_URL": target.root,
        "ANTHROPIC_AUTH_TOKEN": target.secret,
        "ANTHROPIC_MODEL": target.model,
        **{f"ANTHROPIC_DEFAULT_{name}_MODEL": target.model for name in ("OPUS", "SONNET", "FABLE")},
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
        files=(ConfigFile(_CLAUDE_FILE, FileFormat.JSON, {"env": env}),),
        run=f"claude --settings {_CLAUDE_FILE}",
        launch=Launch(("claude",), env),
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


def _cline(target: GatewayTarget) -> Setup:
    settings = {
        "provider": "openai-compatible",
        "baseUrl": target.v1,
        "apiKey": target.secret,
        "model": target.model,
        "contextWindow": target.context,
        "maxTokens": target.output,
        "timeout": LONG_MS,
        **({"capabilities": ["tools", "streaming", "vision"]} if target.sees else {}),
    }
    entry = {"settings": settings, "updatedAt": "2026-01-01T00:00:00.000Z", "tokenSource": "manual"}
    content = {"version": 1, "lastUsedProvider": "openai-compatible", "providers": {"openai-compatible": entry}}
    return Setup(
        files=(ConfigFile("~/.cline/data/settings/providers.json", FileFormat.JSON, content, seed={"modes": {}}),),
        launch=Launch(("cline",), {"CLINE_PROVIDER_SETTINGS_PATH": "{file}"}),
        steps=(
            "Open Cline's settings (the gear).",
            "API Provider: OpenAI Compatible",
            f"Base URL: {target.v1}",
            f"API Key: {target.secret}",
            f"Model ID: {target.model}",
            f"Model Configuration: Context Window Size {target.context}, Max Output Tokens {target.output}"
            + (", Supports Images" if target.sees else ""),
        ),
        notes=(
            "The command line reads the file, the editor its settings.",
            "Cline waits at most 300 s between bytes. sparkdash sends some every 5 s while a model loads.",
        ),
    )


def _codex(target: GatewayTarget) -> Setup:
    provider = {
        "name": "sparkdash",
        "base_url": target.v1,
        "wire_api": "responses",
        "stream_idle_timeout_ms": LONG_MS,
        **({"env_key": VARIABLE} if target.key else {}),
    }
    content = {
        "model": target.model,
        "model_provider": "sparkdash",
        "model_context_window": target.context,
        "web_search": "disabled",
        "agents": {"enabled": False},
        "model_providers": {"sparkdash": provider},
    }
    return Setup(
        files=(ConfigFile("~/.codex/sparkdash.config.toml", FileFormat.TOML, content),),
        env=target.env,
        run="codex --profile sparkdash",
        launch=Launch(("codex", *_codex_options(content)), target.env),
        notes=(
            "stream_idle_timeout_ms: the default is 300 s. model_context_window: the default for an unknown model is "
            "272000 tokens.",
            "web_search and agents are off: gpt-oss under vLLM and SGLang refuses their tool types.",
        ),
    )


def _codex_options(settings: Mapping[str, object], above: str = "") -> Iterator[str]:
    """Settings as `-c name=value`; a value is TOML, of which JSON's strings, numbers and booleans are a part."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _codex_options(value, f"{above}{name}.")
        else:
            yield from ("-c", f"{above}{name}={json.dumps(value)}")


def _continue_dev(target: GatewayTarget) -> Setup:
    model: dict[str, object] = {
        "name": f"sparkdash {target.model}",
        "provider": "openai",
        "model": target.model,
        "apiBase": target.v1,
        "apiKey": target.secret,
        "roles": ["chat", "edit", "apply"],
        "capabilities": ["tool_use", *(["image_input"] if target.sees else [])],
        "defaultCompletionOptions": {"contextLength": target.context, "maxTokens": target.output},
        "requestOptions": {"timeout": LONG_MS},
    }
    models = [model]
    if target.autocomplete is not None:
        models.append(
            {
                "name": f"sparkdash {target.autocomplete} (autocomplete)",
                "provider": "openai",
                "model": target.autocomplete,
                "apiBase": target.v1,
                "apiKey": target.secret,
                "roles": ["autocomplete"],
                "requestOptions": {"headers": {"X-Sparkdash-Priority": "autocomplete"}},
            }
        )
    head = {"name": "Local", "version": "1.0.0", "schema": "v1"}
    hole = "Continue marks the cursor in the way of the model that it reads from the name, such as qwen and coder."
    return Setup(
        files=(ConfigFile("~/.continue/config.yaml", FileFormat.YAML, {"models": models}, seed=head),),
        launch=Launch(("cn", "--config", "{file}"), {}),
        notes=(
            "requestOptions.timeout is in milliseconds; the default is 600 s.",
            "The list of models is read when the editor's window is reloaded.",
            *([hole] if target.autocomplete else []),
        ),
    )


def _copilot_cli(target: GatewayTarget) -> Setup:
    env = {
        "COPILOT_PROVIDER_BASE_URL": target.v1,
        "COPILOT_PROVIDER_API_KEY": target.secret,
        "COPILOT_MODEL": target.model,
        "COPILOT_PROVIDER_MAX_PROMPT_TOKENS": str(target.context - target.output),
        "COPILOT_PROVIDER_MAX_OUTPUT_TOKENS": str(target.output),
        "COPILOT_OFFLINE": "true",
    }
    return Setup(
        env=env,
        run="copilot",
        launch=Launch(("copilot",), env),
        notes=(
            "COPILOT_OFFLINE switches login, telemetry and updates off; only sparkdash is asked.",
            "Copilot waits 600 s for a first byte. sparkdash sends some every 5 s while a model loads.",
        ),
    )


def _jetbrains(target: GatewayTarget) -> Setup:
    return Setup(
        steps=(
            "Settings | Tools | AI Assistant | Providers & API keys",
            "Third-party AI providers, Provider: OpenAI-compatible",
            f"URL: {target.v1}",
            f"API Key: {target.secret}",
            "Tool calling: on. Test Connection, then Apply.",
            f"In the AI chat choose the model {target.model}.",
        ),
        notes=("Its time-outs are not documented; the first request after a swap is the one to watch.",),
    )


def _librechat(target: GatewayTarget) -> Setup:
    endpoint = {
        "name": "sparkdash",
        "apiKey": f"${{{VARIABLE}}}" if target.key else target.secret,
        "baseURL": target.v1,
        "models": {"default": [target.model], "fetch": True},
        "titleConvo": True,
        "titleModel": "auto",
        "modelDisplayLabel": "sparkdash",
    }
    head = {"version": "1.3.0"}  # of the format, not of LibreChat, which exits at its start when the file has none
    return Setup(
        files=(ConfigFile(None, FileFormat.YAML, {"endpoints": {"custom": [endpoint]}}, seed=head),),
        env=target.env,
        notes=(
            "titleModel `auto` is whatever runs, so titles never cause a swap.",
            "In a container, 127.0.0.1 is the container itself. Run it with the host's network, or give sparkdash "
            "a key and an open port (docs/access.md), and use `--url http://host.docker.internal:PORT`.",
        ),
    )


def _llm(target: GatewayTarget) -> Setup:
    model = {
        "model_id": f"sparkdash-{target.model.replace('/', '-')}",
        "model_name": target.model,
        "api_base": target.v1,
        "supports_tools": True,
        "supports_schema": True,
        **({"vision": True} if target.sees else {}),
        **({"api_key_name": "sparkdash"} if target.key else {}),
    }
    return Setup(
        files=(
            ConfigFile(
                "~/.config/io.datasette.llm/extra-openai-models.yaml", FileFormat.YAML, [model], same="model_id"
            ),
        ),
        steps=("llm keys set sparkdash    # asks for the key",) if target.key else (),
        run=f"llm -m {model['model_id']} 'hello'",
        launch=Launch(
            ("llm",),
            {"LLM_USER_PATH": "{folder}", "LLM_MODEL": str(model["model_id"]), "OPENAI_API_KEY": target.secret},
        ),
        notes=(
            "It waits 600 s between bytes; sparkdash sends some every 5 s while a model loads.",
            "`sparkdash launch llm` keeps its own logs, apart from yours.",
        ),
    )


def _open_webui(target: GatewayTarget) -> Setup:
    env = {"OPENAI_API_BASE_URLS": target.v1, "OPENAI_API_KEYS": target.secret, "TASK_MODEL_EXTERNAL": "auto"}
    return Setup(
        env=env,
        launch=Launch(("open-webui", "serve"), env),
        notes=(
            "TASK_MODEL_EXTERNAL `auto` is whatever runs, so titles, tags and follow-ups never cause a swap.",
            "Saved admin settings override variables: see Settings | Connections and Settings | Interface.",
            "In a container, 127.0.0.1 is the container itself. Run it with the host's network, or give sparkdash "
            "a key and an open port (docs/access.md), and use `--url http://host.docker.internal:PORT`.",
            "Open WebUI has no time-out by default (AIOHTTP_CLIENT_TIMEOUT is empty).",
        ),
    )


def _opencode(target: GatewayTarget, program: str = "opencode", home: str = "opencode.ai") -> Setup:
    schema = {"$schema": f"https://{home}/config.json"}
    limit = {"context": target.context, "output": target.output}
    eyes = {"attachment": True, "modalities": {"input": ["text", "image"], "output": ["text"]}} if target.sees else {}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "sparkdash",
        "options": {
            "baseURL": target.v1,
            "apiKey": f"{{env:{VARIABLE}}}" if target.key else target.secret,
            "timeout": LONG_MS,
            "headerTimeout": LONG_MS,
            "chunkTimeout": LONG_MS,
        },
        "models": {target.model: {"name": target.model, **eyes, "limit": limit}},
    }
    name = f"sparkdash/{target.model}"
    content = {"provider": {"sparkdash": provider}, "model": name, "small_model": name}
    return Setup(
        files=(ConfigFile(f"~/.config/{program}/{program}.json", FileFormat.JSON, content, seed=schema),),
        env=target.env,
        run=f"{program} -m {name}",
        launch=Launch((program,), {f"{program.upper()}_CONFIG_CONTENT": json.dumps(content), **target.env}),
        notes=(
            f"small_model is the same model: {program} asks for title and answer at once, and two models would swap.",
            "Some versions always give up after 300 s of silence. sparkdash sends bytes every 5 s while a model loads.",
        ),
    )


def _kilo(target: GatewayTarget) -> Setup:
    return _opencode(target, "kilo", "app.kilo.ai")


def _pi(target: GatewayTarget) -> Setup:
    eyes = {"input": ["text", "image"]} if target.sees else {}
    provider = {
        "baseUrl": target.v1,
        "api": "openai-completions",
        "apiKey": target.secret,
        "compat": {"supportsDeveloperRole": False},
        "models": [{"id": target.model, **eyes, "contextWindow": target.context, "maxTokens": target.output}],
    }
    patience = {"httpIdleTimeoutMs": LONG_MS, "retry": {"provider": {"timeoutMs": LONG_MS}}}
    return Setup(
        files=(
            ConfigFile("~/.pi/agent/models.json", FileFormat.JSON, {"providers": {"sparkdash": provider}}, same="id"),
            ConfigFile("~/.pi/agent/settings.json", FileFormat.JSON, patience),
        ),
        run=f"pi --provider sparkdash --model {target.model}",
        launch=Launch(("pi", "--provider", "sparkdash", "--model", target.model), {"PI_CODING_AGENT_DIR": "{folder}"}),
        notes=(
            "httpIdleTimeoutMs: the default is 300 s.",
            "`sparkdash launch pi` keeps its own sessions and extensions, apart from yours.",
        ),
    )


def _qwen_code(target: GatewayTarget) -> Setup:
    model = {
        "id": target.model,
        "name": f"sparkdash {target.model}",
        "envKey": VARIABLE,
        "baseUrl": target.v1,
        "generationConfig": {"timeout": LONG_MS, "maxRetries": 1, "contextWindowSize": target.context},
    }
    content = {"env": {VARIABLE: target.secret}, "modelProviders": {"openai": [model]}, "model": {"name": target.model}}
    return Setup(
        files=(ConfigFile("~/.qwen/settings.json", FileFormat.JSON, content, same="id"),),
        run="qwen --auth-type openai",
        launch=Launch(
            ("qwen", "--auth-type", "openai"),
            {"OPENAI_BASE_URL": target.v1, "OPENAI_API_KEY": target.secret, "OPENAI_MODEL": target.model},
        ),
        notes=("generationConfig.timeout: 120 s otherwise, four times.",),
    )


def _vscode(target: GatewayTarget) -> Setup:
    model = {
        "id": target.model,
        "name": target.model,
        "url": f"{target.v1}/chat/completions",
        "toolCalling": True,
        "vision": target.sees,
        "maxInputTokens": target.context - target.output,
        "maxOutputTokens": target.output,
    }
    group = {
        "name": "sparkdash",
        "vendor": "customendpoint",
        **({"apiKey": "${input:sparkdashKey}"} if target.key else {}),
        "apiType": "chat-completions",
        "models": [model],
    }
    return Setup(
        files=(ConfigFile("~/.config/Code/User/chatLanguageModels.json", FileFormat.JSON, [group]),),
        steps=(
            *(
                ("Chat: Manage Language Models, the gear of sparkdash: enter the key. VS Code stores it safely.",)
                if target.key
                else ()
            ),
            "Set chat.byokUtilityModelDefault to the main agent's model, so that titles and commits never swap.",
        ),
        notes=(
            "VS Code reads no model list. For a second model add a second entry under `models`.",
            *(() if target.sees else ("vision false: no weights on this box say that the model reads pictures.",)),
            f"The built-in Ollama provider works as well, with the address {target.root}.",
        ),
    )


def _zed(target: GatewayTarget) -> Setup:
    content = {"language_models": {"llama.cpp": {"api_url": target.root}}}
    return Setup(
        files=(ConfigFile("~/.config/zed/settings.json", FileFormat.JSON, content),),
        env={"LLAMACPP_API_KEY": target.secret} if target.key else {},
        steps=(f"Choose {target.model} in the agent panel's model list: every profile is in it, with its context.",),
    )


_FOUND = (
    Recipe("aider", "aider", _aider, "aider 0.86.2; aider.chat/docs/config/options, adv-model-settings"),
    Recipe(
        "claude-code",
        "Claude Code",
        _claude_code,
        "Claude Code 2.1.329, measured against a recording server; code.claude.com/docs/en/settings",
        ClientProtocol.MESSAGES,
    ),
    Recipe("cline", "Cline", _cline, "Cline CLI 3.0.65, run; docs.cline.bot/provider-config/openai-compatible"),
    Recipe(
        "codex",
        "Codex",
        _codex,
        "Codex 0.169.0, measured against a recording server; developers.openai.com/codex/config-advanced",
        ClientProtocol.RESPONSES,
    ),
    Recipe("continue", "Continue", _continue_dev, "Continue 1.5.47; docs.continue.dev/reference"),
    Recipe(
        "copilot-cli",
        "GitHub Copilot CLI",
        _copilot_cli,
        "Copilot CLI 1.0.102, run against sparkdash; its `copilot help providers`",
    ),
    Recipe(
        "jetbrains",
        "JetBrains AI Assistant",
        _jetbrains,
        "jetbrains.com/help/ai-assistant/use-custom-models (2026); not run here",
    ),
    Recipe(
        "librechat",
        "LibreChat",
        _librechat,
        "librechat.ai/docs/configuration/librechat_yaml/object_structure/custom_endpoint (2026), "
        "librechat-data-provider 0.8.524; not run here",
    ),
    Recipe("kilo", "Kilo CLI", _kilo, "Kilo CLI 7.7.7, a fork of opencode, run; kilo.ai/docs/cli"),
    Recipe("llm", "llm", _llm, "llm 0.36; llm.datasette.io/en/stable/other-models.html"),
    Recipe(
        "open-webui", "Open WebUI", _open_webui, "Open WebUI 0.12.4, its env.py and routers/openai.py; not run here"
    ),
    Recipe("opencode", "opencode", _opencode, "opencode 1.18.33; opencode.ai/docs/config"),
    Recipe("pi", "pi", _pi, "pi 1.6.0, run; packages/coding-agent/docs/models.md and settings.md"),
    Recipe("qwen-code", "Qwen Code", _qwen_code, "qwen-code 0.15.10; docs/users/configuration/model-providers.md"),
    Recipe(
        "vscode",
        "VS Code (Copilot Chat)",
        _vscode,
        "code.visualstudio.com/docs, language models, 2026-07; not run here",
    ),
    Recipe(
        "zed",
        "Zed",
        _zed,
        "zed.dev/docs/ai/use-a-local-model (2026), crates/llama_cpp; not run here",
        ClientProtocol.ROUTER,
    ),
    *agents.RECIPES,
    *libraries.RECIPES,
)
RECIPES: dict[str, Recipe] = {found.name: found for found in sorted(_FOUND, key=lambda found: found.name)}


def find_recipe(name: str) -> Recipe:
    """Find the client of that name. Raises AdmissionError: code `client_not_found`, with the nearest names."""
    if name in RECIPES:
        return RECIPES[name]
    close = get_close_matches(name, RECIPES, 3, 0.4)
    guess = f"Did you mean {' or '.join(close)}? " if close else ""
    raise AdmissionError(
        f"There is no recipe for {name!r}.",
        code="client_not_found",
        hint=f"{guess}`sparkdash connect --list` shows all {len(RECIPES)}.",
    )
