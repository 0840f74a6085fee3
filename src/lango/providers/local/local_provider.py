"""Run local models behind the provider protocol."""

import json
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from msgspec.structs import replace

from lango.errors import MissingDependency, ProviderProtocolError
from lango.providers.local import tool_choice
from lango.providers.local.known_models import PROVIDER, LocalModel, local_model, model_file, weights_path
from lango.providers.local.model_engine import INSTALL, Engine, engine_for, is_installed
from lango.providers.local.wire_format import TokenUsage, decode, encode, encode_tool
from lango.providers.protocol import CallDelta, Delta, Finish, Request, TextDelta, ToolSpec

_CHOICE_TOKENS = 64
_ARGUMENT_TOKENS = 512


class LocalProvider:
    """Models that need no key and no network. Engines are shared in the process and loaded on first use."""

    name = PROVIDER

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """Stream the answer to a request; closing the iterator stops the generation."""
        model, path = model_file(request.model)
        answer = _LocalAnswer(request, model, engine_for(model, path))
        async with aclosing(answer.deltas()) as deltas:
            async for delta in deltas:
                yield delta

    def check(self, model: str) -> None:
        """Raise if the engine, the weights or the model do not exist, with all that is to be done."""
        found = local_model(model)
        missing = [] if is_installed() else [INSTALL]
        if found.weights and not weights_path(found.weights).is_file():
            missing.append(f"lango models pull {found.name}")
        if missing:
            raise MissingDependency(
                f"the model {PROVIDER}/{model} is not ready yet: run `{' && '.join(missing)}`. "
                "Or use another model, such as GOOGLE_API_KEY=... LANGO_AGENT__MODEL=gemini/gemini-3.5-flash"
            )
        model_file(model)

    async def load(self, model: str) -> None:
        """Load a model ahead of its first request. It blocks the interpreter for 0.5 to 4 s."""
        found, path = model_file(model)
        await engine_for(found, path).load()

    def context_tokens(self, model: str) -> int:
        """Return the size of a model's context, prompt and answer together."""
        return local_model(model).context_tokens


class _LocalAnswer:
    """The answer of an engine to one request."""

    def __init__(self, request: Request, model: LocalModel, engine: Engine) -> None:
        self._request = request
        self._model = model
        self._engine = engine
        self._usage = TokenUsage()

    async def deltas(self) -> AsyncGenerator[Delta]:
        """Yield the deltas of the answer."""
        body = encode(self._request, self._model)
        if self._request.tools and self._request.tool_choice != "none":
            if not self._chooses_tool_first():
                body["tools"] = [encode_tool(tool) for tool in self._request.tools]
            elif picked := await self._choose_tool():
                steps = self._call(*picked)
                async with aclosing(steps):
                    async for delta in steps:
                        yield delta
                return
        async with aclosing(self._complete(body)) as answer:
            async for delta in answer:
                if isinstance(delta, Finish):
                    yield self._usage.delta()
                yield delta

    def _chooses_tool_first(self) -> bool:
        # the engine's parser of calls can neither force a call nor also apply a schema
        needs_json = self._request.response_schema is not None or self._request.json_object
        return self._model.calls == "pick" or self._must_call or needs_json

    @property
    def _must_call(self) -> bool:
        return self._request.tool_choice not in ("auto", "none")

    async def _choose_tool(self) -> tuple[ToolSpec, list[dict[str, Any]]] | None:
        """Let the model choose a tool; return it with the conversation that led there."""
        required = self._must_call
        if not required and not tool_choice.user_spoke_last(self._request.messages):
            return None
        tools = tool_choice.candidates(self._request, gated=self._model.calls == "pick" and not required)
        if not tools:
            return None
        turns = tool_choice.choice_turns(tools, tool_choice.last_request(self._request.messages), required=required)
        if named := next((tool for tool in tools if tool.name == self._request.tool_choice), None):
            return named, turns
        body = self._step(turns, tool_choice.choice_schema(tools, required=required), _CHOICE_TOKENS)
        async with aclosing(self._complete(body)) as answer:
            pieces = [delta.text async for delta in answer if isinstance(delta, TextDelta)]
        chosen = _function("".join(pieces))
        return next(((tool, turns) for tool in tools if tool.name == chosen), None)

    async def _call(self, tool: ToolSpec, turns: list[dict[str, Any]]) -> AsyncGenerator[Delta]:
        """Yield a tool call, its arguments as the model writes them."""
        yield CallDelta(0, id=f"call_{secrets.token_hex(8)}", name=tool.name)
        finish = Finish("tool_calls", detail="tool_calls")
        if not tool.parameters.get("properties"):
            yield CallDelta(0, arguments="{}")
        else:
            request_text = tool_choice.last_request(self._request.messages)
            body = self._step(tool_choice.argument_turns(turns, tool, request_text), tool.parameters, _ARGUMENT_TOKENS)
            async with aclosing(self._complete(body)) as answer:
                async for delta in answer:
                    if isinstance(delta, TextDelta):
                        yield CallDelta(0, arguments=delta.text)
                    elif isinstance(delta, Finish):
                        finish = replace(delta, reason="tool_calls") if delta.reason == "stop" else delta
        yield self._usage.delta()
        yield finish

    def _step(self, turns: list[dict[str, Any]], schema: Any, max_tokens: int) -> dict[str, Any]:
        request = replace(self._request, messages=(), stop=(), top_p=None, response_schema=schema)
        return {**encode(request, self._model), "messages": turns, "temperature": 0, "max_tokens": max_tokens}

    async def _complete(self, body: dict[str, Any]) -> AsyncGenerator[Delta]:
        async with (
            aclosing(self._engine.chat(body)) as chunks,
            aclosing(decode(chunks, self._usage, self._model.name)) as deltas,
        ):
            async for delta in deltas:
                yield delta


def _function(text: str) -> str:
    try:
        return str(json.loads(text)["function"])
    except (ValueError, KeyError, TypeError) as error:
        raise ProviderProtocolError("The local model's choice of a tool is not JSON", provider=PROVIDER) from error
