"""The parameters of OpenAI's chat completions, by its own SDK, unchanged: applied, accepted or refused."""

import inspect
import json
from typing import Any, Literal

import openai
import pytest
from openai import AsyncOpenAI
from openai.resources.chat.completions import AsyncCompletions
from pydantic import BaseModel


class Place(BaseModel):
    name: str
    kind: Literal["city", "village"]
    inhabitants: int
    neighbours: list["Place"] | None = None


class City(BaseModel):
    """A city."""

    name: str
    inhabitants: int


CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "inhabitants": {"type": "integer"}},
    "required": ["name", "inhabitants"],
    "additionalProperties": False,
}
ROME: dict[str, Any] = {"name": "Rome", "inhabitants": 7}


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": f"{name} it", "parameters": CITY}}


async def create(client: AsyncOpenAI, text: str, **more: Any) -> Any:
    untyped: Any = client.chat.completions
    return await untyped.create(model="obedient", messages=[{"role": "user", "content": text}], **more)


async def applied(client: AsyncOpenAI, **more: Any) -> dict[str, Any]:
    """Return what the model was held to."""
    return json.loads((await create(client, "options", **more)).choices[0].message.content)


async def test_parse_returns_the_sdks_own_object_whole_and_streamed(client: AsyncOpenAI) -> None:
    message: Any = {"role": "user", "content": "Rome"}
    parsed = await client.chat.completions.parse(model="m", messages=[message], response_format=City)
    assert parsed.choices[0].message.parsed == City(**ROME)
    async with client.chat.completions.stream(model="m", messages=[message], response_format=City) as stream:
        events = [event.type async for event in stream]
        final = await stream.get_final_completion()
    assert final.choices[0].message.parsed == City(**ROME)
    assert "content.delta" in events


async def test_text_before_a_tool_call_of_the_agent_is_no_part_of_a_json_answer(client: AsyncOpenAI) -> None:
    for stream in (False, True):
        answer = await create(
            client, "first note", stream=stream, response_format={"type": "json_object"}, tools=[function("pick")]
        )
        if stream:
            pieces = [chunk.choices[0].delta.content or "" async for chunk in answer if chunk.choices]
            assert "".join(pieces) == '{"text": ""}'
        else:
            assert answer.choices[0].message.content == '{"text": ""}'
            assert answer.choices[0].message.executed_tools[0]["name"] == "note"
    plain = await create(client, "first note")
    assert plain.choices[0].message.content.startswith("wait "), "only where the answer must be JSON"


async def test_a_forced_tool_is_called_with_arguments_that_the_sdk_parses(client: AsyncOpenAI) -> None:
    pick = {"type": "function", "function": {"name": "City"}}
    answer = await client.chat.completions.parse(
        model="m",
        messages=[{"role": "user", "content": "Rome"}],
        tools=[openai.pydantic_function_tool(City), openai.pydantic_function_tool(Place, name="other")],
        tool_choice=pick,  # pyright: ignore[reportArgumentType]
    )
    [call] = answer.choices[0].message.tool_calls or []
    assert (call.function.name, call.function.parsed_arguments) == ("City", City(**ROME))
    assert (answer.choices[0].finish_reason, answer.choices[0].message.content) == ("tool_calls", None)
    required = await create(client, "Rome", tools=[function("pick")], tool_choice="required", stream=True)
    chunks = [chunk.choices[0] async for chunk in required if chunk.choices]
    [[called]] = [chunk.delta.tool_calls for chunk in chunks if chunk.delta.tool_calls]
    assert (called.function.name, json.loads(called.function.arguments)) == ("pick", ROME)


async def test_each_choice_of_tools_offers_what_it_says(client: AsyncOpenAI) -> None:
    both = [function("pick"), function("show")]
    held = await applied(client, tools=both)
    assert (held["tool_choice"], {"note", "pick", "show"} <= {*held["tools"]}) == ("auto", True)
    held = await applied(client, tools=both, tool_choice="required")
    assert (held["tool_choice"], held["tools"]) == ("required", ["pick", "show"])
    held = await applied(client, tools=both, tool_choice={"type": "function", "function": {"name": "show"}})
    assert (held["tool_choice"], held["tools"]) == ("show", ["show"])
    held = await applied(client, tools=both, tool_choice="none")
    assert "note" in held["tools"], "the agent's own tools are not the client's to forbid"
    assert not {"pick", "show"} & {*held["tools"]}
    some = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "pick"}}]}
    held = await applied(client, tools=both, tool_choice={"type": "allowed_tools", "allowed_tools": some})
    assert ("pick" in held["tools"], "show" in held["tools"], held["tool_choice"]) == (True, False, "auto")
    forced = {"type": "allowed_tools", "allowed_tools": some | {"mode": "required"}}
    assert (await applied(client, tools=both, tool_choice=forced))["tool_choice"] == "pick"


async def test_the_shape_of_the_answer_and_sampling_reach_the_model(client: AsyncOpenAI) -> None:
    form = {"name": "city", "description": "A city.", "schema": CITY, "strict": True}
    held = await applied(
        client,
        response_format={"type": "json_schema", "json_schema": form},
        temperature=0.5,
        top_p=0.25,
        max_tokens=10,
        max_completion_tokens=20,
        stop=["A", "B", ""],
    )
    assert held["response_schema"] == {"title": "city", "description": "A city."} | CITY
    assert (held["temperature"], held["top_p"], held["max_tokens"], held["stop"]) == (0.5, 0.25, 20, ["A", "B"])
    held = await applied(client, response_format={"type": "json_object"}, stop="A", max_tokens=10)
    assert (held["json_object"], held["max_tokens"], held["stop"]) == (True, 10, ["A"])
    held = await applied(client, response_format={"type": "text"})
    assert (held["json_object"], held["response_schema"]) == (False, None)


ACCEPTED: dict[str, Any] = {
    "frequency_penalty": 0,
    "logit_bias": {},
    "logprobs": False,
    "metadata": {"a": "b"},
    "modalities": ["text"],
    "n": 1,
    "parallel_tool_calls": False,
    "prediction": {"type": "content", "content": "x"},
    "presence_penalty": 0.0,
    "prompt_cache_key": "k",
    "prompt_cache_options": {},
    "prompt_cache_retention": "24h",
    "reasoning_effort": "low",
    "safety_identifier": "s",
    "seed": 1,
    "service_tier": "auto",
    "store": False,
    "user": "u",
    "verbosity": "low",
}
REFUSED: dict[str, Any] = {
    "audio": {"voice": "alloy", "format": "wav"},
    "frequency_penalty": 0.5,
    "function_call": "auto",
    "functions": [{"name": "pick"}],
    "logit_bias": {"50256": -100},
    "logprobs": True,
    "max_completion_tokens": 0,
    "max_tokens": -1,
    "modalities": ["text", "audio"],
    "moderation": {"model": "omni-moderation-latest"},
    "n": 2,
    "presence_penalty": -1,
    "response_format": {"type": "grammar", "grammar": "root ::= x"},
    "stop": ["x"] * 17,
    "temperature": 2.5,
    "tool_choice": "sometimes",
    "top_logprobs": 2,
    "top_p": 1.5,
    "web_search_options": {},
}
TESTED_ABOVE = {"messages", "model", "stream", "stream_options", "tools"}
REPORTED_AS = {"audio": "modalities", "function_call": "functions", "top_logprobs": "logprobs"}


def test_every_parameter_of_the_sdk_is_decided() -> None:
    """A parameter that a later release of the SDK adds is decided here before the release is used."""
    known = {*inspect.signature(AsyncCompletions.create).parameters} - {"self", "timeout"}
    known = {name for name in known if not name.startswith("extra_")}
    assert known == ACCEPTED.keys() | REFUSED.keys() | TESTED_ABOVE


async def test_hints_are_accepted(client: AsyncOpenAI) -> None:
    answer = await create(client, "hello", **ACCEPTED)
    assert answer.choices[0].message.content == "hello"


def schema_format(schema: Any, name: str = "x") -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": name, "schema": schema}}}


@pytest.mark.parametrize(
    "wrong",
    [
        *({name: value} for name, value in REFUSED.items()),
        {"response_format": {"type": "json_schema"}},
        schema_format({"type": "array", "items": {"type": "string"}}),
        schema_format({"type": "object", "properties": {"a": {"type": "nothing"}}}),
        schema_format(CITY, name="not a name"),
        schema_format("not a schema"),
    ],
    ids=lambda wrong: next(iter(wrong)),
)
async def test_what_cannot_be_followed_is_refused_with_the_name_of_the_parameter(
    client: AsyncOpenAI, wrong: dict[str, Any]
) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        await create(client, "hello", **wrong)
    [name] = wrong
    assert raised.value.param == REPORTED_AS.get(name, name)
    assert raised.value.type == "invalid_request_error"
    assert raised.value.message
