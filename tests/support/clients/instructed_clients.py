"""Ask servers by clients that send instructions with chat completions, as their users would; print the answers as JSON.

It runs in an environment of its own, with the packages that `tests.support.clients.packages` names.
"""

import asyncio
import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from pydantic import BaseModel

ASKED = "Which color?"


class City(BaseModel):
    """A city."""

    name: str
    inhabitants: int


def pick(text: str) -> str:
    """Let the user pick.

    Args:
        text: What to pick from.
    """
    return f"picked {text}"


def _module(name: str) -> Any:
    """Import a client, whose types are not known where this file is checked."""
    return importlib.import_module(name)


def instructor(url: str, instructions: str) -> Any:
    library, openai = _module("instructor"), _module("openai")
    messages = [{"role": "system", "content": instructions}, {"role": "user", "content": ASKED}]

    def ask(mode: Any) -> Any:
        client = library.from_openai(openai.OpenAI(base_url=url, api_key="none", max_retries=0), mode)
        answer = client.chat.completions.create(model="lango", response_model=City, messages=messages, max_retries=1)
        return answer.model_dump()

    return [ask(mode) for mode in (library.Mode.JSON, library.Mode.MD_JSON)]


def llama_index(url: str, instructions: str) -> str:
    workflow = _module("llama_index.core.agent.workflow")
    model = _module("llama_index.llms.openai_like").OpenAILike(
        api_base=url, api_key="none", model="lango", is_chat_model=True, max_retries=0
    )

    async def ask() -> str:
        return str(await workflow.ReActAgent(tools=[pick], llm=model, system_prompt=instructions).run(ASKED))

    return asyncio.run(ask())


def llm(url: str, instructions: str) -> str:
    command, runner = _module("llm.cli").cli, _module("click.testing").CliRunner()
    with tempfile.TemporaryDirectory() as folder:
        about = f"- model_id: lango\n  model_name: lango\n  api_base: {url}\n"
        (Path(folder) / "extra-openai-models.yaml").write_text(about)
        done = runner.invoke(command, ["-m", "lango", "-s", instructions, ASKED], env={"LLM_USER_PATH": folder})
        return done.stdout.strip() or done.stderr.strip()


def langchain(url: str, instructions: str) -> str:
    model = _module("langchain_openai").ChatOpenAI(base_url=url, api_key="none", model="lango", max_retries=0)
    agent = _module("langchain.agents").create_agent(model, tools=[pick], system_prompt=instructions)
    return agent.invoke({"messages": [{"role": "user", "content": ASKED}]})["messages"][-1].content


def pydantic_ai(url: str, instructions: str) -> str:
    provider = _module("pydantic_ai.providers.openai").OpenAIProvider(base_url=url, api_key="none")
    model = _module("pydantic_ai.models.openai").OpenAIChatModel("lango", provider=provider)
    return _module("pydantic_ai").Agent(model, instructions=instructions).run_sync(ASKED).output


def agents(url: str, instructions: str) -> str:
    sdk = _module("agents")
    sdk.set_tracing_disabled(True)
    client = _module("openai").AsyncOpenAI(base_url=url, api_key="none", max_retries=0)
    model = sdk.OpenAIChatCompletionsModel("lango", openai_client=client)
    agent = sdk.Agent(name="a", instructions=instructions, model=model, tools=[sdk.function_tool(pick)])
    return sdk.Runner.run_sync(agent, ASKED).final_output


def smolagents(url: str, instructions: str) -> str:
    library = _module("smolagents")
    model = library.OpenAIModel("lango", api_base=url, api_key="none")
    agent = library.CodeAgent([library.tool(pick)], model, instructions=instructions, max_steps=2, verbosity_level=0)
    return agent.run(ASKED)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    clients = (instructor, llama_index, llm, langchain, pydantic_ai, agents, smolagents)
    by_name = {client.__name__: client for client in clients}
    # one process for all of them: most of their cost is the import of what they share
    answers = {name: by_name[name](f"{url}/v1", given["instructions"]) for name, url in given["urls"].items()}
    print(json.dumps(answers))
