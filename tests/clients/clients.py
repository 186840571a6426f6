"""The clients: what each is called, whether `sparkdash connect` configures it, and how it is asked."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"
NOTE = "note.txt"
"""In the folder in which a client is asked; what it says is known to nobody else."""
SHORT = "Say something short."
LONG = "Go on for as long as you can. [[write 20000 tokens]]"
"""The order is the simulated engine's (sparkdash/sim/api/prompt_orders.py), as are those to call a tool."""


class Act(StrEnum):
    """Acts that a client is asked for, in this order: those after an interrupt show that others are served after it."""

    STREAM = "stream"
    """A stream, while the model loads."""
    CANCEL = "cancel"
    """A long stream, in the middle of which it is interrupted."""
    TOOLS = "tools"
    """To read its note with a tool, and to say what the model makes of it."""
    WHOLE = "whole"
    """A whole answer, or a stream where a client knows nothing else."""


@dataclass(frozen=True)
class Place:
    """Where one client finds what it needs. `home` is its own, and empty but for what `sparkdash connect` wrote."""

    url: str
    """The gateway's, without /v1."""
    model: str
    home: Path
    bin: Path
    """Where its program is."""
    shared: Path
    """A folder with a book and a tokenizer."""
    shop: str
    """The same, by HTTP."""
    key: str
    """The client's own, by which the gateway knows its requests."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that `sparkdash connect` tells."""

    @property
    def work(self) -> Path:
        return self.home / "work"


Argv = Callable[[Place], list[str]]


@dataclass(frozen=True)
class Client:
    """One client: how it is installed, configured and asked; an act that is missing it cannot do headless."""

    name: str
    asks: Mapping[Act, Argv]
    needs: str = ""
    """The requirements in this folder that it is installed from, or the name of its package at npm."""
    package: str = ""
    """Name of the package, where it is not the client's."""
    npm: bool = False
    recipe: bool = False
    by_file: tuple[str, ...] = ()
    """Words that point at what `connect --write` wrote; `sparkdash launch` gives its own."""
    launched: bool = False
    """Is it started by `sparkdash launch`, with nothing written before?"""
    before: Argv | None = None
    """Command that configures it, run once before it is asked."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables of its process besides those that `sparkdash connect` tells."""
    only_streams: bool = False
    large: bool = False
    """Is it asked only by name? It takes gigabytes."""
    reads: bool = False
    """Does it need the book and the tokenizer?"""


def program(file: str) -> dict[Act, Argv]:
    """A program of ours that uses a library; the one tool that it offers takes a path."""
    prompts = {Act.STREAM: SHORT, Act.TOOLS: called("read_note", "path", NOTE), Act.CANCEL: LONG, Act.WHOLE: SHORT}

    def argv(act: Act) -> Argv:
        how = Act.STREAM if act is Act.CANCEL else act
        runs = "{0.bin}/node" if file.endswith((".js", ".mjs")) else "{0.bin}/python"
        words = ["{0}", str(PROGRAMS / file), how, "{0.url}/v1", "{0.model}"]
        return lambda at: [runs.format(at), *(word.format(at) for word in words[1:]), prompts[act]]

    return {act: argv(act) for act in Act}


def called(tool: str, argument: str, value: str) -> str:
    return f"What does my note say? [[call {tool} {argument}={value}]]"


def command(*words: str, tools: tuple[str, ...] = (), whole: tuple[str, ...] = ()) -> dict[Act, Argv]:
    """A command line. `words` may name parts of a Place, {0.bin}, and the prompt, {1}.

    `tools`: its own tool, argument and value, and words more; none: it has no tools. `whole`: words more for an answer in one piece.
    """

    def argv(prompt: str, *more: str) -> Argv:
        return lambda at: [*(word.format(at, prompt) for word in words), *more]

    asks = {Act.STREAM: argv(SHORT), Act.CANCEL: argv(LONG), Act.WHOLE: argv(SHORT, *whole)}
    if tools:
        asks[Act.TOOLS] = lambda at: argv(called(*(word.format(at) for word in tools[:3])), *tools[3:])(at)
    return asks


AIDER = (
    "{0.bin}/aider", "--no-git", "--yes-always", "--no-check-update", "--no-show-model-warnings", "--no-auto-commits",
    "--analytics-disable",
)  # fmt: skip
READ_NOTE = "def read_note(path: str) -> str:\n    'Reads a note.'\n    return open(path).read()"


def benchy(tokens: int) -> Argv:
    return lambda at: [
        f"{at.bin}/llama-benchy", "--base-url", f"{at.url}/v1", "--model", at.model, "--tokenizer", str(at.shared),
        "--book-url", f"{at.shop}/book.txt", "--api-key", at.key, "--pp", "64", "--tg", str(tokens), "--runs", "2",
        "--skip-coherence", "--latency-mode", "none", "--exit-on-first-fail",
    ]  # fmt: skip


def guidellm(tokens: int) -> Argv:
    return lambda at: [
        f"{at.bin}/guidellm", "run", "--backend", f"kind=openai_http,target={at.url},model={at.model},api_key={at.key}",
        "--profile", "kind=synchronous", "--constraint", "kind=max_requests,count=3", "--disable-progress",
        "--tokenizer", f"kind=huggingface_auto,model={at.shared}",
        "--data", f"kind=synthetic_text,prompt_tokens=64,output_tokens={tokens}",
    ]  # fmt: skip


def agent(name: str, *words: str, **more: Any) -> Client:
    """An agent from npm with a recipe, which knows nothing but streams. `words`, `tools`: see `command`."""
    asks = command(*words, tools=more.pop("tools"))
    return Client(name, asks, npm=True, recipe=True, only_streams=True, **more)


CLIENTS = (
    Client(
        "llm",
        command(
            "{0.bin}/llm", "-m", "sparkdash-{0.model}", "{1}",
            tools=("read_note", "path", NOTE, "--functions", READ_NOTE), whole=("--no-stream",),
        ),
        recipe=True,
        before=lambda at: [f"{at.bin}/llm", "keys", "set", "sparkdash", "--value", at.key],
    ),
    Client("aider", command(*AIDER, "--message", "{1}", whole=("--no-stream",)), package="aider-chat", recipe=True),
    Client("openai-python", program("openai_python.py"), needs="sdks", package="openai"),
    Client("anthropic-python", program("anthropic_python.py"), needs="sdks", package="anthropic"),
    Client("litellm", program("litellm_python.py")),
    Client("langchain", program("langchain_python.py"), package="langchain-openai"),
    Client(
        "llama-benchy",
        {Act.STREAM: benchy(16), Act.CANCEL: benchy(8000), Act.WHOLE: benchy(16)},
        only_streams=True,
        reads=True,
    ),
    Client(
        "guidellm",
        {Act.STREAM: guidellm(16), Act.CANCEL: guidellm(8000), Act.WHOLE: guidellm(16)},
        only_streams=True,
        reads=True,
        large=True,
    ),
    Client("openai-node", program("openai_node.js"), package="openai", npm=True),
    agent(
        "opencode", "{0.bin}/opencode", "run", "{1}", tools=("bash", "command", f"cat {NOTE}"), package="opencode-ai",
    ),
    agent(
        "kilo", "{0.bin}/kilo", "run", "--auto", "{1}", tools=("bash", "command", f"cat {NOTE}"),
        package="@kilocode/cli",
    ),
    agent(
        "codex", "{0.bin}/codex", "exec", "--profile", "sparkdash", "--skip-git-repo-check", "{1}",
        tools=("exec_command", "cmd", f"cat {NOTE}", "-s", "danger-full-access"), package="@openai/codex",
        by_file=("--profile", "sparkdash"),
    ),
    agent(
        "claude-code", "{0.bin}/claude", "--settings", "{0.home}/.claude/sparkdash.json", "--allowedTools", "Bash",
        "-p", "{1}", tools=("Bash", "command", f"cat {NOTE}"), package="@anthropic-ai/claude-code",
        by_file=("--settings", "{0.home}/.claude/sparkdash.json"),
    ),
    agent(
        "qwen-code", "{0.bin}/qwen", "--auth-type", "openai", "--approval-mode", "yolo", "-p", "{1}",
        tools=("run_shell_command", "command", f"cat {NOTE}"), package="@qwen-code/qwen-code",
        by_file=("--auth-type", "openai"),
    ),
    agent(
        "pi", "{0.bin}/pi", "--provider", "sparkdash", "--model", "{0.model}", "--no-session", "-p", "{1}",
        tools=("bash", "command", f"cat {NOTE}"), package="@earendil-works/pi-coding-agent",
        by_file=("--provider", "sparkdash", "--model", "{0.model}"), env={"PI_OFFLINE": "1"},
    ),
    agent(
        "continue", "{0.bin}/cn", "--config", "{0.home}/.continue/config.yaml", "--auto", "-p", "{1}",
        tools=("Bash", "command", f"cat {NOTE}"), package="@continuedev/cli",
        by_file=("--config", "{0.home}/.continue/config.yaml"), env={"CONTINUE_TELEMETRY_ENABLED": "0"},
    ),
    agent("cline", "{0.bin}/cline", "{1}", tools=("read_files", "path", f"{{0.work}}/{NOTE}")),
    agent(
        "copilot-cli", "{0.bin}/copilot", "--allow-all-tools", "-p", "{1}",
        tools=("view", "path", f"{{0.work}}/{NOTE}"), package="@github/copilot",
    ),
    agent(
        "droid", "{0.bin}/droid", "exec", "--auto", "high", "-m", "custom:{0.model}-(sparkdash)-0", "{1}",
        tools=("Read", "file_path", f"{{0.work}}/{NOTE}"),
    ),
    agent(
        "openclaw", "{0.bin}/openclaw", "agent", "--local", "--agent", "main", "--message", "{1}",
        tools=("exec", "command", f"cat {{0.work}}/{NOTE}"),
        # by default it offers a search for tools, and those that are found are called through one tool more
        before=lambda at: [f"{at.bin}/openclaw", "config", "set", "tools.toolSearch", "false"],
    ),
    Client(
        "hermes",
        command(
            "{0.bin}/hermes", "chat", "-Q", "--yolo", "-q", "{1}", tools=("terminal", "command", f"cat {NOTE}"),
        ),
        package="hermes-agent",
        recipe=True,
        only_streams=True,
    ),
    Client("llama-index", program("llama_index_python.py"), package="llama-index-llms-openai-like"),
    Client("ai-sdk", program("ai_sdk.mjs"), package="ai", npm=True),
)  # fmt: skip


def launched(client: Client) -> Client:
    """The same client, started by `sparkdash launch` from an empty home."""

    def through(argv: Argv) -> Argv:
        def words(at: Place) -> list[str]:
            written = {word.format(at) for word in client.by_file}
            start = [sys.executable, "-m", "sparkdash", "launch", client.name, at.model, "--"]
            return [*start, *(word for word in argv(at)[1:] if word not in written)]

        return words

    return replace(client, launched=True, asks={act: through(argv) for act, argv in client.asks.items()})


def chosen(only: str, *, only_real: bool) -> list[Client]:
    """The clients that `--only` names, each with the acts that it is asked for; a tiny real model calls no tool."""
    names = dict(word.partition(":")[::2] for word in only.split(","))
    if unknown := names.keys() - {client.name for client in CLIENTS}:
        raise SystemExit(f"--only: no client is called {', '.join(sorted(unknown))}.")
    possible = set(Act) - {Act.TOOLS} if only_real else set(Act)
    found = []
    for client in CLIENTS:
        if client.name in names:
            acts = possible & {Act(word) for word in names[client.name].split("+") if word} or possible
            found.append(replace(client, asks={act: argv for act, argv in client.asks.items() if act in acts}))
    return found
