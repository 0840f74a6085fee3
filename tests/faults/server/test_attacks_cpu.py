"""Attack 16: no input of a client, a model, a tool or a page makes the event loop do much at once.

A real server is driven with hostile sizes and shapes while it counts what each callback of its loop does
(`monitored_agent`), and answers other requests. What is too large is refused, or done in a thread or a process.
`benchmarks.attacks` measures how long each of them delays the loop.
"""

import base64
import importlib
import json
import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from tests.support.loop_monitor import (
    BOUNDS,
    Attack,
    MonitoredServer,
    ask_model,
    chat,
    check_loop_stays_free,
    monitored_server,
    post,
)
from tests.support.servers.monitored_agent import SIZED
from tests.support.servers.server_process import Server

ATTACKS: dict[str, Attack] = {}


@pytest.fixture(scope="module")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MonitoredServer]:
    with monitored_server(tmp_path_factory.mktemp("monitored")) as monitored:
        yield monitored


def attack(function: Attack) -> Attack:
    ATTACKS[function.__name__] = function
    return function


# -- bodies -----------------------------------------------------------------------------------------------------------


def padded(filling: bytes, size: int, start: bytes, end: bytes) -> bytes:
    return start + filling * ((size - len(start) - len(end)) // len(filling)) + end


_MODEL = b'{"model":"m","messages":[{"role":"user","content":"hi"}],"metadata":'


@attack
async def a_body_of_empty_lists(client: httpx.AsyncClient, server: Server) -> None:
    await post(client, "/v1/chat/completions", padded(b"[],", 9_900_000, _MODEL + b"[", b"[]]}"), 400, 413)


@attack
async def a_body_of_numbers(client: httpx.AsyncClient, server: Server) -> None:
    await post(client, "/v1/chat/completions", padded(b"1,", 9_900_000, _MODEL + b"[", b"1]}"), 400, 413)


@attack
async def a_body_of_long_numbers(client: httpx.AsyncClient, server: Server) -> None:
    await post(client, "/v1/chat/completions", padded(b"1" * 4000 + b",", 9_900_000, _MODEL + b"[", b"1]}"), 400, 413)


@attack
async def a_body_of_keys(client: httpx.AsyncClient, server: Server) -> None:
    keys = b",".join(b'"%d":1' % number for number in range(900_000))
    await post(client, "/v1/chat/completions", _MODEL + b"{" + keys + b"}}", 400, 413)


@attack
async def a_small_body_of_empty_lists(client: httpx.AsyncClient, server: Server) -> None:
    body = padded(b"[],", 990_000, b'{"text":"hi","metadata":[', b"[]]}")
    await post(client, "/v1/sessions/lists/messages", body, 400, 413)


@attack
async def a_deep_body(client: httpx.AsyncClient, server: Server) -> None:
    await post(client, "/v1/chat/completions", b"[" * 9_000_000, 400, 413)


@attack
async def a_long_text(client: httpx.AsyncClient, server: Server) -> None:
    await post(client, "/v1/chat/completions", chat("hello, world. " * 680_000), 200, 400)


@attack
async def a_long_word(client: httpx.AsyncClient, server: Server) -> None:
    await post(client, "/v1/chat/completions", chat("a" * 9_900_000), 200, 400)


@attack
async def a_long_text_of_escapes(client: httpx.AsyncClient, server: Server) -> None:
    await post(client, "/v1/chat/completions", chat("ab\n" * 2_400_000), 200, 400)


@attack
async def a_long_text_of_other_scripts(client: httpx.AsyncClient, server: Server) -> None:
    body = json.dumps(chat("漢字かな" * 800_000), ensure_ascii=False).encode()
    await post(client, "/v1/chat/completions", body, 200, 400)


@attack
async def many_messages(client: httpx.AsyncClient, server: Server) -> None:
    talk = [{"role": ("user", "assistant")[at % 2], "content": f"message {at} " * 20} for at in range(4_999)]
    await post(client, "/v1/chat/completions", chat(*talk, "hi"))


@attack
async def many_input_items(client: httpx.AsyncClient, server: Server) -> None:
    talk: list[Any] = [{"role": ("user", "assistant")[at % 2], "content": f"message {at} " * 20} for at in range(2_998)]
    calls = [{"type": "function_call", "call_id": f"c{at}", "name": "pick", "arguments": "{}"} for at in range(1_000)]
    outputs = [{"type": "function_call_output", "call_id": f"c{at}", "output": "{}"} for at in range(1_000)]
    await post(client, "/v1/responses", {"input": [*talk, *calls, *outputs, {"role": "user", "content": "hi"}]})


@attack
async def many_wrong_input_items(client: httpx.AsyncClient, server: Server) -> None:
    wrong = [{"role": "user", "content": [{"text": 1}] * 20}] * 4_999
    await post(client, "/v1/responses", {"input": wrong}, 400, 413)


@attack
async def too_many_messages(client: httpx.AsyncClient, server: Server) -> None:
    talk = [{"role": "user", "content": "x"} for _ in range(200_000)]
    await post(client, "/v1/chat/completions", chat(*talk), 400, 413)


@attack
async def many_results(client: httpx.AsyncClient, server: Server) -> None:
    talk = [{"role": "tool", "tool_call_id": f"c{at}", "content": '{"a": [1, 2, 3]}'} for at in range(4_900)]
    await post(client, "/v1/chat/completions", chat(*talk, "hi"))


@attack
async def a_large_result(client: httpx.AsyncClient, server: Server) -> None:
    result = {"role": "tool", "tool_call_id": "c", "content": "[" + "[]," * 3_000_000 + "[]]"}
    await post(client, "/v1/chat/completions", chat(result, "hi"))


@attack
async def many_wrong_messages(client: httpx.AsyncClient, server: Server) -> None:
    await post(client, "/v1/chat/completions", {"messages": [{"role": 1, "content": 1}] * 9_000}, 400)


@attack
async def a_long_agui_conversation(client: httpx.AsyncClient, server: Server) -> None:
    roles = ("user", "assistant")
    talk = [{"id": f"m{at}", "role": roles[at % 2], "content": f"message {at} " * 20} for at in range(9_999)]
    body = {"threadId": "t1", "runId": os.urandom(4).hex(), "messages": talk}
    rest: dict[str, Any] = {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
    await post(client, "/agui", body | rest)


@attack
async def many_messages_at_once(client: httpx.AsyncClient, server: Server) -> None:
    talk = [{"id": f"m{at}", "role": "user", "content": f"message {at} " * 20} for at in range(9_999)]
    body = {"threadId": "t3", "runId": os.urandom(4).hex(), "messages": talk}
    rest: dict[str, Any] = {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
    await post(client, "/agui", body | rest, 400)


@attack
async def a_large_agui_text(client: httpx.AsyncClient, server: Server) -> None:
    talk = [{"id": "m1", "role": "user", "content": "hello, world. " * 680_000}]
    body = {"threadId": "t2", "runId": os.urandom(4).hex(), "messages": talk}
    await post(client, "/agui", body | {"state": {}, "tools": [], "context": [], "forwardedProps": {}}, 200, 400)


@attack
async def wrong_agui_messages(client: httpx.AsyncClient, server: Server) -> None:
    body = {"threadId": "t3", "runId": "r", "messages": [{"id": "m", "role": "none"}] * 50_000}
    await post(client, "/agui", body, 400, 413)


# -- files, sockets, addresses ----------------------------------------------------------------------------------------


@attack
async def a_large_file(client: httpx.AsyncClient, server: Server) -> None:
    file = {
        "name": "a.bin",
        "mime_type": "application/octet-stream",
        "data": base64.b64encode(bytes(9_900_000)).decode(),
    }
    await post(client, "/v1/sessions/file/messages", {"text": "see", "attachments": [file]})


@attack
async def a_large_text_file(client: httpx.AsyncClient, server: Server) -> None:
    file = {"name": "a.txt", "mime_type": "text/plain", "data": base64.b64encode(b"word " * 1_900_000).decode()}
    await post(client, "/v1/sessions/text-file/messages", {"text": "see", "attachments": [file]})


@attack
async def a_large_picture_for_openai(client: httpx.AsyncClient, server: Server) -> None:
    url = f"data:image/png;base64,{base64.b64encode(bytes(7_000_000)).decode()}"
    part = {"type": "image_url", "image_url": {"url": url}}
    await post(client, "/v1/chat/completions", chat({"role": "user", "content": [part]}))


@attack
async def a_large_file_for_adk(client: httpx.AsyncClient, server: Server) -> None:
    name = f"adk-{os.urandom(4).hex()}"
    await post(client, f"/apps/obedient/users/user/sessions/{name}", {})
    data = base64.b64encode(bytes(9_900_000)).decode()
    message = {"role": "user", "parts": [{"text": "hi"}, {"inlineData": {"mimeType": "image/png", "data": data}}]}
    body = {"appName": "obedient", "userId": "user", "sessionId": name, "newMessage": message}
    await post(client, "/run", body)


@attack
async def large_frames(client: httpx.AsyncClient, server: Server) -> None:
    async with connect(server.url.replace("http", "ws") + "/v1/ws", max_size=None) as socket:
        for text in ("[" * 900_000, "[" + "[]," * 300_000 + "[]]", json.dumps({"type": "x" * 900_000}), "1" * 900_000):
            await socket.send(text)
            assert json.loads(await socket.recv())["type"] == "turn_error"
        await socket.send(json.dumps({"type": "message", "session": "ws", "text": "a" * 900_000}))
        while json.loads(await socket.recv())["type"] not in ("done", "turn_error"):
            pass


@attack
async def long_addresses_and_headers(client: httpx.AsyncClient, server: Server) -> None:
    long = "a" * 50_000
    for path in (f"/v1/sessions/{long}", f"/v1/sessions?cursor={long}", f"/v1/search?q={long}", f"/{long}"):
        assert (await client.get(path)).status_code in (400, 404, 414, 431)
    for name in ("Authorization", "Cookie", "Last-Event-ID", "Idempotency-Key", "X-Session-Id", "Origin"):
        answer = await client.post("/v1/chat/completions", json=chat("hi"), headers={name: "1" * 50_000})
        assert answer.status_code < 500


@attack
async def hard_searches(client: httpx.AsyncClient, server: Server) -> None:
    for query in ("a" * 1000, "a " * 500, "漢" * 1000, '"' * 1000, "a* OR NEAR(" * 90, "e\u0301" * 500, "\u1100" * 900):
        assert (await client.get("/v1/search", params={"q": query})).status_code == 200


# -- a client's tools -------------------------------------------------------------------------------------------------


def tools(count: int, parameters: Any) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": f"t{at}", "parameters": parameters}} for at in range(count)]


def properties(**schemas: Any) -> dict[str, Any]:
    return {"type": "object", "properties": schemas}


BRANCHES = [{"type": "object", "properties": {f"p{at}": {"const": at}}} for at in range(1000)]
SCHEMAS: dict[str, Any] = {
    "branches": properties(a={"anyOf": BRANCHES}),
    "allowed_branches": properties(a={"anyOf": BRANCHES[:150]}),
    "deep": json.loads('{"properties":{"a":' * 300 + "{}" + "}}" * 300),
    "enum": properties(a={"enum": list(range(20_000))}),
    "many": properties(**{f"a{at}": {"type": "string"} for at in range(2000)}),
    "multiplied": properties(a={"$ref": "#/$defs/d0"})
    | {"$defs": {f"d{at}": {"anyOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 2} for at in range(40)} | {"d40": {}}},
    "to_itself": properties(a={"$ref": "#/$defs/d"}) | {"$defs": {"d": {"allOf": [{"$ref": "#/$defs/d"}]}}},
    "pattern": properties(a={"type": "string", "pattern": "^(a+)+$"}),
    "long_pattern": properties(a={"type": "string", "pattern": "((a{1000}){1000}){1000}"}),
    "class_pattern": properties(a={"pattern": "[" + "".join(f"\\u{at:04x}" for at in range(256, 5000)) + "]{50}"}),
}


def _offer(schema: Any) -> Attack:
    async def offered(client: httpx.AsyncClient, server: Server) -> None:
        await post(client, "/v1/chat/completions", chat("hi", tools=tools(10, schema)), 200, 400, 413)
        body = {
            "threadId": f"t-{os.urandom(4).hex()}",
            "runId": "r",
            "messages": [{"id": "m", "role": "user", "content": "hi"}],
        }
        given = [{"name": f"t{at}", "description": "", "parameters": schema} for at in range(10)]
        await post(
            client, "/agui", body | {"state": {}, "tools": given, "context": [], "forwardedProps": {}}, 200, 400, 413
        )

    return offered


ATTACKS.update({f"a_schema_{name}": _offer(schema) for name, schema in SCHEMAS.items()})


@attack
async def a_call_that_a_pattern_takes_long_for(client: httpx.AsyncClient, server: Server) -> None:
    for name in ("pattern", "around"):
        await ask_model(client, {"call": name, "arguments": ['{"a": "', "a", 300_000, '!"}']})
    schema = properties(a={"anyOf": [{"type": "array", "items": {"$ref": "#/properties/a"}}] * 2})
    call = json.dumps({"call": "t0", "arguments": ['{"a": ' + "[" * 60, "", 0, "]" * 60 + "}"]})
    await post(client, "/v1/chat/completions", chat(call, tools=tools(1, schema)))


# -- what models and tools say ----------------------------------------------------------------------------------------


@attack
async def a_long_answer(client: httpx.AsyncClient, server: Server) -> None:
    await ask_model(client, {"say": {"repeat": ["word ", 2_000_000]}})


@attack
async def an_answer_of_one_word(client: httpx.AsyncClient, server: Server) -> None:
    await ask_model(client, {"say": {"repeat": ["a", 10_000_000]}})


@attack
async def an_answer_in_many_pieces(client: httpx.AsyncClient, server: Server) -> None:
    await ask_model(client, {"say": "x", "times": 20_000})


def _call(start: str, filling: str, count: int, end: str, **more: Any) -> Attack:
    async def called(client: httpx.AsyncClient, server: Server) -> None:
        await ask_model(client, {"call": "give", "arguments": [start, filling, count, end]} | more)

    return called


def _output(what: Any) -> Attack:
    return _call(json.dumps({"what": what}), "", 0, "")


ATTACKS["arguments_of_one_text"] = _call('{"what": 1, "more": "', "a", 1_900_000, '"}')
ATTACKS["arguments_that_are_too_long"] = _call('{"what": 1, "more": "', "a", 20_000_000, '"}')
ATTACKS["arguments_of_many_values"] = _call('{"what": 1, "more": [', '{"a":1},', 4_900, "1]}")
ATTACKS["arguments_of_too_many_values"] = _call('{"what": 1, "more": [', "[],", 600_000, "1]}")
ATTACKS["arguments_that_are_deep"] = _call('{"what": 1, "more": ', "[", 500_000, "}")
ATTACKS["many_calls"] = _call('{"what": ', "", 0, "1}", times=128)
ATTACKS["an_output_of_50_mb"] = _output({"repeat": ["word ", 10_000_000]})
ATTACKS["an_output_of_one_word"] = _output({"repeat": ["a", 10_000_000]})
ATTACKS["an_output_of_other_scripts"] = _output({"repeat": ["漢字", 5_000_000]})
ATTACKS["an_output_of_many_values"] = _output({"many": 90_000})
ATTACKS["an_output_of_too_many_values"] = _output({"many": 500_000})
ATTACKS["an_output_that_is_deep"] = _output({"deep": 100_000})


@pytest.mark.long
@pytest.mark.parametrize("name", ATTACKS)
async def test_attack_16_no_input_holds_the_event_loop(monitored: MonitoredServer, name: str) -> None:
    await check_loop_stays_free(monitored, ATTACKS[name])


@pytest.mark.parametrize("kind", BOUNDS)
async def test_work_on_the_event_loop_is_noticed(monitored: MonitoredServer, kind: str) -> None:
    async def work(client: httpx.AsyncClient, server: Server) -> None:
        await ask_model(client, {"hold": [kind, BOUNDS[kind] + 1]})

    with pytest.raises(AssertionError, match="the event loop did too much"):
        await check_loop_stays_free(monitored, work)


@pytest.mark.parametrize("name", SIZED)
def test_every_function_whose_sizes_are_counted_exists(name: str) -> None:
    module, _, function = name.rpartition(".")
    assert callable(getattr(importlib.import_module(module), function))
