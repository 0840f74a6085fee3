"""Ask a server by the Python clients that people have, as their users would, and print what came back as JSON.

It runs in an environment of its own, with the packages that `tests.support.clients.packages` names.
"""

import base64
import importlib
import json
import os
import sys
import tempfile
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

TEXT = "Rome"
SEEN: Any = [
    {"type": "text", "text": "see"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
]


class City(BaseModel):
    """A city."""

    name: str
    inhabitants: int


class Pick(BaseModel):
    """Let the user pick."""

    text: str


def session_header() -> dict[str, str]:
    """Return the header that keeps a history on the server, for a session of its own."""
    return {"X-Session-Id": f"s-{uuid.uuid4().hex[:12]}"}


def said(call: Callable[[], Any]) -> str:
    """Return the type and the text of the exception that a call raises."""
    try:
        return f"nothing: {call()}"
    except Exception as error:  # noqa: BLE001 - whatever the client raises is what its user sees
        return f"{type(error).__module__.partition('.')[0]}.{type(error).__name__}: {error}"


def _module(name: str) -> Any:
    """Import a client, whose types are not known where this file is checked."""
    return importlib.import_module(name)


def langchain(url: str) -> dict[str, Any]:
    def make(**more: Any) -> Any:
        chat = _module("langchain_openai").ChatOpenAI
        return chat(base_url=f"{url}/v1", api_key="none", model="obedient", max_retries=0, **more)

    model, kept = make(), {"default_headers": session_header()}
    found = {
        "resume": [make(**kept).invoke(text).content for text in ("remember me", "recite")][1],
        "chat": model.invoke(TEXT).content,
        "stream": "".join(str(chunk.content) for chunk in model.stream("words 3 0")),
        "structured": model.with_structured_output(City).invoke(TEXT).model_dump(),
        "streamed": [part.model_dump() for part in model.with_structured_output(City).stream(TEXT)][-1],
        "forced": model.bind_tools([City], tool_choice="City").invoke(TEXT).tool_calls[0]["args"],
        "any": model.bind_tools([City], tool_choice="any").invoke(TEXT).tool_calls[0]["args"],
        "tools": [call["name"] for call in model.bind_tools([Pick]).invoke("call Pick").tool_calls],
        "pictures": model.invoke([{"role": "user", "content": SEEN}]).content,
        "error": said(lambda: model.bind(n=2).invoke(TEXT)),
    }
    for method in ("function_calling", "json_mode"):
        answer = model.with_structured_output(City, method=method, include_raw=True).invoke(TEXT)
        found[method] = (answer["parsed"] and answer["parsed"].model_dump()) or answer["raw"].content
    return found


def instructor(url: str) -> dict[str, Any]:
    instructor, openai = _module("instructor"), _module("openai")

    kept = session_header()

    def ask(*mode: Any, content: Any = TEXT, partial: bool = False, **more: Any) -> Any:
        sdk = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        completions = instructor.from_openai(sdk, *mode).chat.completions
        messages = [{"role": "user", "content": content}]
        create = completions.create_partial if partial else completions.create
        return create(model="obedient", response_model=City, messages=messages, max_retries=1, **more)

    picture = instructor.Image.from_base64(SEEN[1]["image_url"]["url"])
    ask(content=["see", picture], extra_headers=kept)
    with urllib.request.urlopen(f"{url}/v1/sessions/{kept['X-Session-Id']}/messages") as response:
        stored = json.load(response)["messages"][0]
    return {
        "pictures": [file["mime_type"] for file in stored["attachments"]],
        "streamed": [part.model_dump() for part in ask(partial=True)][-1],
        "forced": ask().model_dump(),
        "structured": ask(instructor.Mode.JSON_SCHEMA).model_dump(),
        "error": said(lambda: ask(n=2)),
    }


def litellm(url: str) -> dict[str, Any]:
    completion = _module("litellm").completion

    def ask(text: Any = TEXT, **more: Any) -> Any:
        messages = [{"role": "user", "content": text}]
        return completion("openai/obedient", messages, api_base=f"{url}/v1", api_key="none", max_retries=0, **more)

    kept = session_header()
    city = {"type": "function", "function": {"name": "city", "parameters": City.model_json_schema()}}
    pick = {"type": "function", "function": {"name": "pick", "parameters": Pick.model_json_schema()}}
    named = {"type": "function", "function": {"name": "city"}}
    forced = ask(tools=[city, pick], tool_choice=named).choices[0].message.tool_calls[0].function
    return {
        "chat": ask().choices[0].message.content,
        "stream": "".join(chunk.choices[0].delta.content or "" for chunk in ask("words 3 0", stream=True)),
        "structured": json.loads(ask(response_format=City).choices[0].message.content),
        "object": json.loads(ask(response_format={"type": "json_object"}).choices[0].message.content),
        "forced": json.loads(forced.arguments),
        "tools": [call.function.name for call in ask("call pick", tools=[pick]).choices[0].message.tool_calls],
        "pictures": ask(SEEN).choices[0].message.content,
        "resume": [ask(text, extra_headers=kept).choices[0].message.content for text in ("remember me", "recite")][1],
        "error": said(lambda: ask(n=2)),
    }


def llm(url: str) -> dict[str, Any]:
    command, runner = _module("llm.cli").cli, _module("click.testing").CliRunner()
    with tempfile.TemporaryDirectory() as folder:
        about = f"- model_id: lango\n  model_name: obedient\n  api_base: {url}/v1\n"
        able = "  supports_schema: true\n  supports_tools: true\n  vision: true\n"
        (Path(folder) / "extra-openai-models.yaml").write_text(about + able)

        def ask(*arguments: str) -> str:
            # in this process: each start of the command takes two seconds to import what it needs
            done = runner.invoke(command, ["-m", "lango", *arguments], env={"LLM_USER_PATH": folder})
            return done.stdout.strip() or done.stderr.strip()

        (Path(folder) / "picture.png").write_bytes(base64.b64decode("iVBORw0KGgo="))
        ask("remember me")
        return {
            "resume": ask("-c", "recite"),
            "tools": ask("--functions", "def pick(text: str) -> str:\n    return 'red'", "call pick"),
            "pictures": ask("-a", f"{folder}/picture.png", "see"),
            "chat": ask("--no-stream", TEXT),
            "stream": ask("words 3 0"),
            "structured": json.loads(ask("--schema", "name, inhabitants int", TEXT)),
            "error": ask("-o", "logit_bias", '{"1": 5}', TEXT),
        }


if __name__ == "__main__":
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the network for prices when it is imported
    server = json.loads(sys.argv[1])["url"]
    print(json.dumps({client.__name__: client(server) for client in (langchain, instructor, litellm, llm)}))
