"""Libraries for programs: the values that each is given in the code that uses it. Pure."""

import json
from collections.abc import Callable, Mapping

from sparkdash.connect.recipe import LONG_MS, LONG_S, VARIABLE, GatewayTarget, Language, Recipe, Setup, Snippet

_JS_NOTE = (
    "Node's fetch always gives up after 300 s without a byte. The header makes sparkdash send white space before a "
    "whole answer while a model loads (docs/requests.md). Streams are kept alive in any case."
)


def _code(language: Language, text: str, target: GatewayTarget) -> Snippet:
    """Fill in a program with the target's values as literals of its language; the key by its variable's name."""
    keys = {Language.PYTHON: f'os.environ["{VARIABLE}"]', Language.JAVASCRIPT: f"process.env.{VARIABLE}"}
    values: Mapping[str, str] = {
        "ROOT": json.dumps(target.root),
        "V1": json.dumps(target.v1),
        "MODEL": json.dumps(target.model),
        "VLLM_MODEL": json.dumps(f"hosted_vllm/{target.model}"),
        "KEY": keys[language] if target.key else json.dumps(target.secret),
        "CONTEXT": str(target.context),
        "LONG_S": str(LONG_S),
        "LONG_MS": str(LONG_MS),
        "HEADERS": '{ "X-Sparkdash-Keep-Alive": "whitespace" }',
    }
    for word, value in values.items():
        text = text.replace(f"<{word}>", value)
    return Snippet(language, ("import os\n\n" if "os.environ" in text else "") + text)


def _library(programs: Mapping[Language, str], *notes: str) -> Callable[[GatewayTarget], Setup]:
    def setup(target: GatewayTarget) -> Setup:
        snippets = tuple(_code(language, text, target) for language, text in programs.items())
        return Setup(env=target.env, snippets=snippets, notes=notes)

    return setup


def _python(text: str, *notes: str) -> Callable[[GatewayTarget], Setup]:
    return _library({Language.PYTHON: text}, *notes)


_OPENAI_PYTHON = """\
from openai import OpenAI

client = OpenAI(base_url=<V1>, api_key=<KEY>, timeout=<LONG_S>)
answer = client.chat.completions.create(model=<MODEL>, messages=[{"role": "user", "content": "Hello"}])
print(answer.choices[0].message.content)
"""
_OPENAI_NODE = """\
import OpenAI from "openai";

const client = new OpenAI({
  baseURL: <V1>,
  apiKey: <KEY>,
  timeout: <LONG_MS>,
  defaultHeaders: <HEADERS>,
});
const answer = await client.chat.completions.create({ model: <MODEL>, messages: [{ role: "user", content: "Hello" }] });
console.log(answer.choices[0].message.content);
"""


_LANGCHAIN = """\
from langchain_openai import ChatOpenAI

model = ChatOpenAI(base_url=<V1>, api_key=<KEY>, model=<MODEL>)
print(model.invoke("Hello").text)
"""


_LLAMA_INDEX = """\
from llama_index.llms.openai_like import OpenAILike

model = OpenAILike(
    model=<MODEL>,
    api_base=<V1>,
    api_key=<KEY>,
    is_chat_model=True,
    is_function_calling_model=True,
    context_window=<CONTEXT>,
    timeout=<LONG_S>,
)
print(model.complete("Hello"))
"""


_AI_SDK = """\
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText } from "ai";

const sparkdash = createOpenAICompatible({
  name: "sparkdash",
  baseURL: <V1>,
  apiKey: <KEY>,
  headers: <HEADERS>,
  includeUsage: true,
});
const { text } = await generateText({ model: sparkdash(<MODEL>), prompt: "Hello" });
console.log(text);
"""


_LITELLM = """\
import litellm

answer = litellm.completion(
    model=<VLLM_MODEL>,
    api_base=<V1>,
    api_key=<KEY>,
    messages=[{"role": "user", "content": "Hello"}],
    timeout=<LONG_S>,
)
print(answer.choices[0].message.content)
"""


def _litellm(target: GatewayTarget) -> Setup:
    return Setup(
        env={"LITELLM_LOCAL_MODEL_COST_MAP": "True", **target.env},
        snippets=(_code(Language.PYTHON, _LITELLM, target),),
        notes=(
            "`hosted_vllm/` passes requests on as they are; `openai/` changes some.",
            "LITELLM_LOCAL_MODEL_COST_MAP keeps litellm from fetching a list of prices on import.",
        ),
    )


_PYDANTIC_AI = """\
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

model = OpenAIChatModel(<MODEL>, provider=OpenAIProvider(base_url=<V1>, api_key=<KEY>))
print(Agent(model, model_settings={"timeout": <LONG_S>}).run_sync("Hello").output)
"""
_OPENAI_AGENTS = """\
from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI

set_tracing_disabled(True)
client = AsyncOpenAI(base_url=<V1>, api_key=<KEY>, timeout=<LONG_S>)
agent = Agent(name="Assistant", model=OpenAIChatCompletionsModel(<MODEL>, openai_client=client))
print(Runner.run_sync(agent, "Hello").final_output)
"""
_SMOLAGENTS = """\
from smolagents import OpenAIModel, ToolCallingAgent

model = OpenAIModel(<MODEL>, api_base=<V1>, api_key=<KEY>, client_kwargs={"timeout": <LONG_S>})
print(ToolCallingAgent(tools=[], model=model).run("Hello"))
"""
_OLLAMA_PYTHON = """\
from ollama import Client

client = Client(host=<ROOT>, headers={"Authorization": "Bearer " + <KEY>}, timeout=<LONG_S>)
print(client.chat(<MODEL>, messages=[{"role": "user", "content": "Hello"}]).message.content)
"""
_OLLAMA_NODE = """\
import { Ollama } from "ollama";

const client = new Ollama({ host: <ROOT>, headers: { Authorization: "Bearer " + <KEY> } });
const answer = await client.chat({ model: <MODEL>, messages: [{ role: "user", content: "Hello" }], stream: true });
for await (const part of answer) process.stdout.write(part.message.content);
"""


def _ollama(target: GatewayTarget) -> Setup:
    return _library(
        {Language.PYTHON: _OLLAMA_PYTHON, Language.JAVASCRIPT: _OLLAMA_NODE},
        f"Other programs for Ollama: OLLAMA_HOST={target.root}. They name profiles and their aliases as models.",
        "Node gives up after 300 s without a byte; a stream is kept alive.",
    )(target)


RECIPES = (
    Recipe("ollama", "Ollama's libraries", _ollama, "ollama 0.6.3 (PyPI), 0.6.4 (npm)"),
    Recipe(
        "openai-agents",
        "OpenAI Agents SDK",
        _python(_OPENAI_AGENTS, "Its traces would go to OpenAI: they are switched off."),
        "openai-agents 0.24.0",
    ),
    Recipe(
        "pydantic-ai",
        "Pydantic AI",
        _python(_PYDANTIC_AI, "Without `timeout` it waits 600 s, three times over."),
        "pydantic-ai-slim 2.68.0",
    ),
    Recipe(
        "smolagents",
        "smolagents",
        _python(_SMOLAGENTS, "Without `timeout` it waits 600 s, three times over."),
        "smolagents 1.26.0",
    ),
    Recipe(
        "openai",
        "openai for Python and Node",
        _library(
            {Language.PYTHON: _OPENAI_PYTHON, Language.JAVASCRIPT: _OPENAI_NODE},
            "Python waits 600 s without `timeout`, and posts the request twice more.",
            _JS_NOTE,
        ),
        "openai 3.54 (PyPI), 6.49 (npm); run",
    ),
    Recipe(
        "langchain",
        "LangChain",
        _python(
            _LANGCHAIN,
            "It has no time-out of its own.",
            "OpenAIEmbeddings needs check_embedding_ctx_length=False, or it fetches OpenAI's tokenizer.",
        ),
        "langchain-openai 1.7.3; run",
    ),
    Recipe(
        "llama-index",
        "LlamaIndex",
        _python(
            _LLAMA_INDEX,
            "Without `timeout` it waits 60 s, four times over.",
            "It takes an unknown model to have 3900 tokens.",
        ),
        "llama-index-llms-openai-like 0.8.1; run",
    ),
    Recipe(
        "ai-sdk",
        "AI SDK",
        _library({Language.JAVASCRIPT: _AI_SDK}, _JS_NOTE),
        "ai 7.0.173, @ai-sdk/openai-compatible 3.0.92; run",
    ),
    Recipe("litellm", "LiteLLM", _litellm, "litellm 1.103.7; run"),
)
