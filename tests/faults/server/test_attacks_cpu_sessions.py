"""Attack 16, with whole conversations: none that is resent, imported, exported or observed holds the event loop."""

import asyncio
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.loop_monitor import Attack, MonitoredServer, chat, check_loop_stays_free, monitored_server, post
from tests.support.servers.server_process import TIMEOUT_S, Server

ATTACKS: dict[str, Attack] = {}
REMEMBERING: dict[str, Attack] = {}
SHARE = 0.5
"""Many inputs are half as large as they may be: then a callback may do half as much."""
MEMORY = "[memory]\nenabled = true\nuser_facts = true\nobserve_at_tokens = 200\nreflect_at_tokens = 1000000\n"
Lines = Callable[[], Iterable[dict[str, Any]]]


@pytest.fixture(scope="module")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MonitoredServer]:
    with monitored_server(tmp_path_factory.mktemp("monitored")) as monitored:
        yield monitored


@pytest.fixture(scope="module")
def remembering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MonitoredServer]:
    with monitored_server(tmp_path_factory.mktemp("remembering"), rest=MEMORY) as monitored:
        yield monitored


def attack(function: Attack) -> Attack:
    ATTACKS[function.__name__] = function
    return function


def fresh() -> str:
    return f"s-{os.urandom(6).hex()}"


# -- histories that a request carries ---------------------------------------------------------------------------------


def exchanged(count: int, words: str = "message of some words, as people write them ") -> list[dict[str, Any]]:
    mark = fresh()
    roles = ("user", "assistant")
    return [{"role": roles[at % 2], "content": f"{mark} {at} {words * 4}"} for at in range(count)]


def with_calls(count: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": fresh()}]
    for at in range(count):
        call = {"id": f"c{at}", "type": "function", "function": {"name": "look", "arguments": '{"a": [1, 2, 3]}'}}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{at}", "content": '{"found": [1, 2, 3]}'},
        ]
    return [*messages, {"role": "assistant", "content": "done"}]


async def send_history(
    client: httpx.AsyncClient, *messages: Any, statuses: tuple[int, ...] = (200,), **more: Any
) -> None:
    await post(client, "/v1/chat/completions", chat(*messages, **more), *statuses, named=False)


@attack
async def a_carried_history_of_many_messages(client: httpx.AsyncClient, server: Server) -> None:
    messages = exchanged(2_496)
    await send_history(client, *messages, "hi")
    await send_history(
        client, *messages, "hi", {"role": "assistant", "content": "ok"}, "and now?"
    )  # found again, and compared


@attack
async def a_carried_history_of_calls(client: httpx.AsyncClient, server: Server) -> None:
    messages = with_calls(1_000)
    await send_history(client, *messages, "hi")
    await send_history(client, *messages, "hi", {"role": "assistant", "content": "ok"}, "and now?")


@attack
async def a_carried_history_of_long_messages(client: httpx.AsyncClient, server: Server) -> None:
    messages = exchanged(10, "word " * 40_000)
    await send_history(client, *messages, "hi", statuses=(200, 400))
    await send_history(client, *messages, "hi", {"role": "assistant", "content": "ok"}, "and now?", statuses=(200, 400))


@attack
async def a_carried_history_of_one_speaker(client: httpx.AsyncClient, server: Server) -> None:
    await send_history(client, *[f"message {at}" for at in range(2_499)], statuses=(200, 400))
    answers = [{"role": "assistant", "content": f"{at} " * 100} for at in range(2_498)]
    await send_history(client, "hi", *answers, "go on", statuses=(200, 400))


@attack
async def a_carried_history_that_many_sessions_begin_with(client: httpx.AsyncClient, server: Server) -> None:
    messages = exchanged(200)
    for number in range(6):  # each differs in its first message only, so that each is compared to its end
        first = {"role": "user", "content": f"other {number}"}
        await send_history(client, first, *messages[1:], "hi")
    await send_history(client, *messages, "hi", {"role": "assistant", "content": "ok"}, "and now?")


# -- AG-UI ------------------------------------------------------------------------------------------------------------


async def run_agui(client: httpx.AsyncClient, messages: Iterable[Any], *statuses: int, **more: Any) -> str:
    body = {"threadId": fresh(), "runId": fresh(), "messages": list(messages)}
    rest: dict[str, Any] = {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
    return await post(client, "/agui", body | rest | more, *statuses)


HELLO = {"id": "m", "role": "user", "content": "hi"}
STATES: dict[str, Callable[[], Any]] = {
    "of_one_text": lambda: {"a": "word " * 1_900_000},
    "of_many_values": lambda: {"a": [{"b": 1}] * 45_000},
    "of_many_keys": lambda: {f"key-{at}": at for at in range(90_000)},
    "that_is_deep": lambda: json.loads('{"a":' * 400 + "1" + "}" * 400),
}


def _state(make: Callable[[], Any]) -> Attack:
    async def sent(client: httpx.AsyncClient, server: Server) -> None:
        for name in ("state", "forwardedProps"):
            await run_agui(client, [HELLO], 200, 400, 413, **{name: make()})

    return sent


ATTACKS.update({f"an_agui_state_{name}": _state(state) for name, state in STATES.items()})


@attack
async def an_agui_context_of_many_entries(client: httpx.AsyncClient, server: Server) -> None:
    context = [{"description": f"entry {at}", "value": "words " * 20} for at in range(10_000)]
    await run_agui(client, [HELLO], 200, 400, 413, context=context)


@attack
async def an_agui_history_of_calls(client: httpx.AsyncClient, server: Server) -> None:
    messages: list[Any] = []
    for at in range(2_000):
        call = {"id": f"c{at}", "type": "function", "function": {"name": "look", "arguments": '{"a": [1, 2, 3]}'}}
        messages.append({"id": f"a{at}", "role": "assistant", "toolCalls": [call]})
        messages.append({"id": f"t{at}", "role": "tool", "toolCallId": f"c{at}", "content": '{"found": [1, 2, 3]}'})
    await run_agui(client, [*messages, HELLO])


# -- sessions that are made, named, imported, read and exported -------------------------------------------------------

HEADER = {"kind": "header", "format": "lango-session", "version": 1}


def exported(*rest: dict[str, Any], **session: Any) -> bytes:
    """Return an export that holds some lines."""
    times = {"created_at": 1_760_000_000.0, "updated_at": 1_760_000_001.0}
    described = {"kind": "session", "app": "a", "user": "u", "id": fresh(), "revision": 0, "epoch": 5} | times | session
    described["revision"] = session.get("revision", sum(one["kind"] in ("message", "state") for one in rest))
    lines = [HEADER, described, *rest]
    return b"".join(json.dumps(one).encode() + b"\n" for one in [*lines, {"kind": "end", "lines": len(lines)}])


def message(seq: int, content: str, **more: Any) -> dict[str, Any]:
    role = "user" if seq % 2 else "assistant"
    line = {"kind": "message", "seq": seq, "role": role, "author": role, "content": content, "tokens": 5}
    return line | {"created_at": 1_760_000_000.5, "event_id": f"e{seq}"} | more


def called(seq: int, value: Any) -> dict[str, Any]:
    if seq % 2:
        call = {"id": f"c{seq}", "name": "look", "input": value}
        return message(seq, "", role="assistant", tool_calls=[call])
    result = {"id": f"c{seq - 1}", "name": "look", "output": value}
    return message(seq, "", role="tool", tool_calls=[result])


def turn(number: int) -> dict[str, Any]:
    return {"kind": "turn", "turn": number, "status": "done", "created_at": 1_760_000_000.0, "epoch": 1}


def calls(seq: int) -> list[dict[str, Any]]:
    return [{"id": f"c{seq}-{number}", "name": "look", "input": {}} for number in range(200)]


def effect(call_id: str) -> dict[str, Any]:
    line = {"kind": "effect", "call_id": call_id, "epoch": 1, "name": "look", "effect": "none"}
    return line | {"status": "finished", "arguments": "{}", "intended_at": 1_760_000_000.0}


def notes(count: int, text: str) -> list[dict[str, Any]]:
    places = {"batch": 1, "first_seq": 1, "last_seq": 1}
    batch = {"kind": "observation_batch", "generation": 0, "floor_seq": 0, "created_at": 1_760_000_000.0} | places
    note = {"kind": "observation", "priority": "low", "day": "2026-01-01", "text": text} | places
    return [batch, *({**note, "number": number} for number in range(1, count + 1))]


READ = (
    "",
    "/messages?limit=200",
    "/messages?limit=200&before=2",
    "/usage",
    "/memory?all=true",
    "/waits",
    "/export",
)


def _import(
    make: Lines, *, statuses: tuple[int, ...] = (201,), say: bool = True, also: tuple[str, ...] = (), **session: Any
) -> Attack:
    """Import a session, read it in every way, send messages in it, delete it. Its lines are made when it is sent.

    `also` are addresses besides those that every session is read at.
    """

    async def imported(client: httpx.AsyncClient, server: Server) -> None:
        id_ = fresh()
        body = exported(*make(), **session)
        kind = "application/x-ndjson"
        await post(client, f"/v1/sessions/import?id={id_}", body, *statuses, kind=kind)
        if statuses != (201,):
            return
        for path in READ:
            answer = await client.get(f"/v1/sessions/{id_}{path}")
            assert answer.status_code == 200, (path, answer.status_code, answer.text[:300])
        of_all = "/v1/sessions", f"/apps/obedient/users/user/sessions/{id_}", "/apps/obedient/users/user/sessions"
        for path in (*of_all, *(one.format(id=id_) for one in also)):
            answer = await client.get(path)
            assert answer.status_code == 200, (path, answer.status_code, answer.text[:300])
        if say:
            await post(client, f"/v1/sessions/{id_}/messages", {"text": "hi"}, 200, 400)
        forked = json.loads(await post(client, f"/v1/sessions/{id_}/fork", {}, 201))
        for one in (forked["id"], id_):
            assert (await client.delete(f"/v1/sessions/{one}")).status_code == 204

    return imported


MANY: Any = [{"b": 1}] * 10_000
ATTACKS["an_import_of_many_messages"] = _import(lambda: [message(at, f"message {at} " * 20) for at in range(1, 1_501)])
ATTACKS["an_import_of_long_messages"] = _import(lambda: [message(at, "word " * 500_000) for at in range(1, 4)])
ATTACKS["an_import_in_the_slowest_script"] = _import(lambda: [message(at, "ภาษาไทย" * 25_000) for at in range(1, 6)])
ATTACKS["an_import_of_one_long_word"] = _import(lambda: [message(1, "a" * 4_000_000)])
ATTACKS["an_import_of_a_word_that_is_too_long"] = _import(lambda: [message(1, "a" * 40_000_000)], statuses=(413,))
ITEMS = "/v1/conversations/{id}/items?limit=100"
ATTACKS["an_import_of_large_calls"] = _import(lambda: [called(at, {"a": MANY}) for at in range(1, 4)], also=(ITEMS,))
ATTACKS["an_import_of_one_huge_line"] = _import(lambda: [called(1, {"a": [[]] * 8_000_000})], statuses=(400, 413))
ATTACKS["an_import_of_a_deep_line"] = _import(
    lambda: [called(1, json.loads('{"a":' * 900 + "1" + "}" * 900))], statuses=(400, 413)
)


def states(count: int, value: Any) -> list[dict[str, Any]]:
    line: dict[str, Any] = {"kind": "state", "seq": 0, "created_at": 1.0}
    every = range(1, count + 1)
    return [line | {"revision": at, "event_id": f"s{at}", "state_delta": {f"k{at}": value}} for at in every]


ATTACKS["an_import_of_large_states"] = _import(lambda: states(3, MANY[:3_500]), revision=3)
ATTACKS["an_import_of_states_that_are_too_large"] = _import(lambda: states(40, MANY), revision=40, statuses=(400,))
ATTACKS["an_import_of_many_turns"] = _import(lambda: [message(1, "hi"), *map(turn, range(1, 3_001))])


def answered(at: int) -> list[dict[str, Any]]:
    """A message with calls, and one with their results."""
    results: list[dict[str, Any]] = [{"id": call["id"], "name": call["name"], "output": {}} for call in calls(at)]
    made = message(2 * at - 1, "", role="assistant", tool_calls=calls(at))
    return [made, message(2 * at, "", role="tool", tool_calls=results)]


USED = {"model": "m", "agent": "a", "started_at": 1, "duration_s": 1, "step": "s"}
ATTACKS["an_import_of_a_turn_of_many_model_calls"] = _import(
    lambda: [message(1, "hi"), message(2, "yes"), turn(1) | {"first_seq": 1, "extra": {"calls": [USED] * 15_000}}]
)


def artifact(number: int) -> dict[str, Any]:
    line = {"kind": "artifact", "name": f"file-{number}", "version": 0, "content": "text", "mime_type": "text/plain"}
    content = {"hash": hashlib.sha256(b"x").hexdigest(), "size": 1, "created_at": 1.0}
    return line | content | {"metadata": {"of": [{"a": 1}] * 1_000}}


ATTACKS["an_import_of_artifacts_with_much_metadata"] = _import(
    lambda: [
        {"kind": "content", "hash": artifact(0)["hash"], "number": 0, "data": "eA=="},
        message(1, "hi"),
        *map(artifact, range(200)),
    ],
    also=("/v1/sessions/{id}/artifacts",),
)
ATTACKS["an_import_of_many_effects"] = _import(
    lambda: [
        *[line for at in range(1, 14) for line in answered(at)],
        *[effect(f"c{at}-{number}") for at in range(1, 14) for number in range(200)],
    ]
)
ATTACKS["an_import_of_many_notes"] = _import(lambda: [message(1, "hi"), *notes(5_000, "a note of some words")])
ATTACKS["an_import_of_long_notes"] = _import(lambda: [message(1, "hi"), *notes(20, "word " * 200_000)], statuses=(400,))
ATTACKS["an_import_of_many_rewinds"] = _import(
    lambda: [message(at, "hi") for at in range(1, 1_501)], rewinds=[[at, at - 1] for at in range(2, 1_501)]
)
ATTACKS["an_import_with_many_gaps"] = _import(
    lambda: [message(at, "hi") for at in range(1, 2_251)],
    rewinds=[[at, at - 1] for at in range(3, 2_251, 3)],
    also=("/v1/sessions/{id}/evalset", "/v1/search?q=hi"),
)
ATTACKS["an_import_of_files"] = _import(
    lambda: [
        message(
            at,
            "",
            role="user",
            extra={"parts": [{"inline_data": {"mime_type": "text/plain", "data": "QUFB" * 500_000}}]},
        )
        for at in range(1, 3)
    ]
)


@attack
async def long_titles(client: httpx.AsyncClient, server: Server) -> None:
    id_ = fresh()
    await post(client, "/v1/sessions", {"id": id_}, 201)
    for title in (
        "a" * 990_000,
        " " * 990_000,
        "a " * 490_000,
        "\u0301" * 160_000,
        "\x1b[2J" * 90_000,
        " " * 999 + "a",
    ):
        renamed = await client.patch(f"/v1/sessions/{id_}", json={"title": title})
        assert renamed.status_code in (200, 400), renamed.text[:300]
        await post(client, f"/v1/sessions/{id_}/fork", {"title": title}, 201, 400)
        kind = "application/x-ndjson"
        await post(client, "/v1/sessions/import", exported(title=title * 10), 201, 400, kind=kind)


@attack
async def large_states(client: httpx.AsyncClient, server: Server) -> None:
    for state in ({"a": "word " * 190_000}, {"a": MANY}, {f"key-{at}": at for at in range(15_000)}):
        id_ = fresh()
        await post(client, "/v1/sessions", {"id": id_, "state": state}, 201)
        await post(client, f"/v1/sessions/{id_}/messages", {"text": "hi"})
        for path in (f"/v1/sessions/{id_}", f"/v1/sessions/{id_}/export", f"/apps/obedient/users/user/sessions/{id_}"):
            assert (await client.get(path)).status_code == 200
        assert (await client.delete(f"/v1/sessions/{id_}")).status_code == 204


# -- notes of an observer ---------------------------------------------------------------------------------------------


def _noted(*pieces: Any) -> Attack:
    """Let the observer answer with a note, and then with some pieces of text that are repeated; `#` is their number."""

    async def noted(client: httpx.AsyncClient, server: Server) -> None:
        id_ = fresh()
        order = json.dumps({"note": [["- [high] (1-1) a first note\n", 1], *pieces]})
        words = "and some more words, so that it is observed at once"
        await post(client, f"/v1/sessions/{id_}/messages", {"text": f"{words * 20} NOTE{order}END"})
        async with asyncio.timeout(TIMEOUT_S):
            while not (await client.get(f"/v1/sessions/{id_}/memory")).json()["observed_seq"]:
                await asyncio.sleep(0.05)
        for path in (f"/v1/sessions/{id_}/memory?all=true", "/v1/memory?all=true", f"/v1/sessions/{id_}/export"):
            assert (await client.get(path)).status_code == 200
        await post(client, f"/v1/sessions/{id_}/messages", {"text": "hi"})
        for fact in (await client.get("/v1/memory")).json()["facts"][:1]:
            assert (await client.delete(f"/v1/memory/{fact['id']}")).status_code == 200

    return noted


REMEMBERING["many_notes"] = _noted(["- [low] (1-1) a note of some words, again and again\n", 50_000])
REMEMBERING["many_lines_that_are_no_notes"] = _noted(["no note at all, but a line\n", 100_000])
REMEMBERING["a_long_note"] = _noted(["- [low] (1-1) ", 1], ["word ", 2_000_000])
REMEMBERING["a_note_of_spaces"] = _noted([" ", 200_000], ["[", 1])
REMEMBERING["a_note_of_many_numbers"] = _noted(["- [low] (", 1], ["1-1 ", 500_000], [") a note", 1])
REMEMBERING["many_facts"] = _noted(["- [fact] (1-1) thing #: a fact of many words and words and words\n", 900])
REMEMBERING["a_long_fact"] = _noted(["- [fact] (1-1) home: ", 1], ["word ", 1_000_000])
REMEMBERING["a_fact_with_a_long_name"] = _noted(["- [fact] (1-1) ", 1], ["_-", 1_000_000], [": x", 1])


REMEMBERING["imported_notes"] = _import(lambda: [message(1, "hi"), *notes(900, "a note of some words " * 40)])
REMEMBERING["many_imported_notes"] = _import(lambda: [message(1, "hi"), *notes(5_000, "a note")])


@pytest.mark.long
@pytest.mark.parametrize("name", ATTACKS)
async def test_attack_16_no_conversation_holds_the_event_loop(monitored: MonitoredServer, name: str) -> None:
    await check_loop_stays_free(monitored, ATTACKS[name], SHARE)


ON_POSTGRES = (
    "an_import_of_large_calls",
    "an_import_of_many_turns",
    "an_import_of_a_turn_of_many_model_calls",
    "an_import_with_many_gaps",
)


@pytest.mark.long
async def test_attack_16_nor_on_postgresql(tmp_path: Path, postgres_url: str) -> None:
    """There, the event loop continues operations: what they do with many or large rows must be done in a thread."""
    with monitored_server(tmp_path, store_url=postgres_url) as monitored:
        for name in ON_POSTGRES:
            await check_loop_stays_free(monitored, ATTACKS[name], SHARE)


@pytest.mark.long
@pytest.mark.parametrize("name", REMEMBERING)
async def test_attack_16_no_note_holds_the_event_loop(remembering: MonitoredServer, name: str) -> None:
    await check_loop_stays_free(remembering, REMEMBERING[name], SHARE)
