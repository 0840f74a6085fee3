"""Without a named session, the model reads exactly the history in an OpenAI request."""

import asyncio
import hashlib
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import openai
import pytest
from openai import AsyncOpenAI

from lango.sessions import NO_RESULT, SessionId
from lango.store import Store
from lango.store.codec.records import CLIENT_HISTORY_KEY
from lango.store.lifecycle.integrity import check_session
from lango.store.sessions.window import read_session_events
from tests.agents.parts import add_api_key
from tests.e2e.server_compat.test_openai_files import PNG, picture, text, url_of
from tests.support.servers.server_process import TIMEOUT_S, Server, serving, waits_of

Messages = list[dict[str, Any]]


@pytest.fixture(scope="module")
def store_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('store')}/lango.db"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, store_url: str) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("carried"), store_url) as running:
        yield running


@pytest.fixture
async def sdk(server: Server) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=TIMEOUT_S, max_retries=0) as made:
        yield made


def chat_message(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def fresh(word: str = "hello") -> str:
    return f"{word} {uuid.uuid4().hex}"


class Chat:
    """A chat of a front end, which sends the whole history with every message."""

    def __init__(self, sdk: AsyncOpenAI, *messages: dict[str, Any], **headers: str) -> None:
        self.sdk = sdk
        self.messages: Messages = [*messages]
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.session = ""

    async def send_text(self, words: Any, **more: Any) -> str:
        self.messages.append(chat_message("user", words))
        return await self.send(**more)

    async def send(self, **more: Any) -> str:
        raw = await self.sdk.chat.completions.with_raw_response.create(
            model="obedient", messages=cast("Any", self.messages), extra_headers=self.headers, extra_body=more
        )
        message = raw.parse().choices[0].message
        self.session = raw.headers["x-session-id"]
        self.messages.append(message.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True))
        return message.content or ""

    async def recite(self, **more: Any) -> Any:
        """Return the history that the model reads."""
        return json.loads(await self.send_text("recite", **more))

    def copy(self) -> "Chat":
        made = Chat(self.sdk, *self.messages)
        made.headers = self.headers
        return made


def read(messages: Messages) -> list[Any]:
    """Return the expected history: the messages without the system message, because the agent has its own."""
    return [[one["role"], [one["content"]]] for one in messages if one["role"] != "system"]


async def stored(server: Server, session: str) -> list[tuple[str, str]]:
    async with server.client() as http:
        page = (await http.get(f"/v1/sessions/{session}/messages")).json()
    return [(one["role"], one["content"]) for one in page["messages"]]


async def sound(url: str, session: str, user: str = "user") -> list[tuple[str, bool]]:
    """Check the integrity of a session; return the role of each message, and whether it was carried."""
    name = SessionId("obedient", user, session)
    async with Store(url) as store:
        assert await store.read(check_session, name) == []
        found = await store.read(read_session_events, name)
    assert found
    metadata: list[dict[str, Any]] = [(one.extra or {}).get("custom_metadata") or {} for one in found[1]]
    roles = [one.message.role for one in found[1] if one.message]
    return list(zip(roles, [bool(one.get(CLIENT_HISTORY_KEY)) for one in metadata], strict=True))


# -- chats do not mix ----------------------------------------------------------------------------------------------


async def test_a_chat_never_reads_another_chat_with_the_same_history(sdk: AsyncOpenAI, tmp_path: Path) -> None:
    start, secret = fresh("Hi"), tmp_path / "secret"
    one, other = Chat(sdk), Chat(sdk)
    assert [await one.send_text(start), await other.send_text(start)] == [start, start]
    assert one.session != other.session, "the same first words begin two conversations"
    one.messages.append(chat_message("user", f"hold {secret}"))
    stream = await sdk.chat.completions.create(model="obedient", messages=cast("Any", one.messages), stream=True)
    chunks = aiter(stream)
    while not (await anext(chunks)).choices[0].delta.content:
        pass  # the secret is stored, and its answer takes a while
    assert await other.recite() == read(other.messages[:-1])
    assert await other.recite() == read(other.messages[:-1])
    secret.touch()
    async for _ in chunks:
        pass
    one.messages.append(chat_message("assistant", "begun ended"))
    assert await one.recite() == read(one.messages[:-1])
    assert one.session != other.session


async def test_of_many_requests_with_the_same_history_one_continues_the_session(
    sdk: AsyncOpenAI, store_url: str
) -> None:
    first = Chat(sdk)
    await first.send_text(fresh())
    begun, chats = first.session, [first.copy() for _ in range(8)]
    answers = await asyncio.gather(*[chat.send_text(f"recite {number}") for number, chat in enumerate(chats)])
    for answer, chat in zip(answers, chats, strict=True):
        assert json.loads(answer) == read(chat.messages[:-1])
    sessions = [chat.session for chat in chats]
    assert len({*sessions}) == 8
    assert sessions.count(begun) == 1
    for chat in chats:
        carried = chat.session != begun
        assert await sound(store_url, chat.session) == [
            *[("user", carried), ("assistant", carried)],
            *[("user", False), ("assistant", False)],
        ]


async def test_a_session_with_a_running_and_a_queued_turn_is_never_joined(
    sdk: AsyncOpenAI, server: Server, tmp_path: Path
) -> None:
    chat, gate = Chat(sdk), tmp_path / "gate"
    await chat.send_text(fresh())
    async with server.client() as http:
        place = f"/v1/sessions/{chat.session}/messages"
        for words in (f"hold {gate}", "queued"):
            async with http.stream("POST", place, json={"text": words}) as response:
                await anext(response.aiter_lines())  # accepted
    begun, unaware = chat.session, chat.copy()
    assert await unaware.recite() == read(unaware.messages[:-1])
    assert unaware.session != begun
    informed = chat.copy()
    informed.messages.append(chat_message("user", f"hold {gate}"))
    assert await informed.recite() == read(informed.messages[:-1])
    assert informed.session != begun
    gate.touch()


async def test_tool_results_of_another_chat_are_not_read(sdk: AsyncOpenAI) -> None:
    start = fresh()
    one, other = Chat(sdk), Chat(sdk)
    for chat in (one, other):
        await chat.send_text(start)
        await chat.send_text("note")
    for chat in (one, other):  # the two sessions look the same to a client
        before = chat.session
        assert await chat.recite() == read(chat.messages[:-1])
        assert chat.session != before
    alone = Chat(sdk)
    await alone.send_text(fresh())
    await alone.send_text("note")
    before = alone.session
    assert [role for role, _ in await alone.recite()][-4:] == ["assistant", "tool", "assistant", "user"]
    assert alone.session == before, "its own tools' results are read where there is no doubt"


async def test_another_callers_key_continues_no_session(tmp_path: Path, sqlite_url: str) -> None:
    async with Store(sqlite_url) as store:
        keys = [(await add_api_key(store, name))[1] for name in ("alice", "bob")]
    named = {"X_OpenWebUI_Chat_Id": "c1", "X_OpenWebUI_User_Id": "u1"}
    with serving(tmp_path, sqlite_url, server='auth = "keys"') as server:
        alice, bob = [AsyncOpenAI(base_url=f"{server.url}/v1", api_key=key, timeout=TIMEOUT_S) for key in keys]
        async with alice, bob:
            for headers in ({}, named):
                one = Chat(alice, **headers)
                await one.send_text("hello")
                other = Chat(bob, *one.messages, **headers)
                assert await other.recite() == read(other.messages[:-1])
                before = one.session
                assert await one.recite() == read(one.messages[:-1])
                assert one.session == before != other.session
            metadata: dict[str, Any] = {"user": "u1", "metadata": {"conversation_id": "c1"}}
            await Chat(alice).send_text("a secret", **metadata)
            assert await Chat(bob).recite(**metadata) == [["user", ["recite"]]]
            assert await Chat(alice).recite(**metadata) == read(
                [
                    chat_message("user", "a secret"),
                    chat_message("assistant", "a secret"),
                    chat_message("user", "recite"),
                ]
            )


# -- nothing is forgotten ------------------------------------------------------------------------------------------


def regenerated(messages: Messages) -> None:
    del messages[3:]


def edited(messages: Messages) -> None:
    messages[2] = chat_message("user", "another question")


def first_edited(messages: Messages) -> None:
    messages[0] = chat_message("user", fresh())


def trimmed(messages: Messages) -> None:
    del messages[:2]


def altered(messages: Messages) -> None:
    messages[1] = chat_message("assistant", "not said here")


def begun_by_the_assistant(messages: Messages) -> None:
    messages.insert(0, chat_message("assistant", "Welcome!"))


def doubled(messages: Messages) -> None:
    messages[2:2] = messages[:2]


@pytest.mark.parametrize(
    "change", [regenerated, edited, first_edited, trimmed, altered, begun_by_the_assistant, doubled]
)
async def test_another_history_starts_a_session_with_exactly_that_history(
    sdk: AsyncOpenAI, store_url: str, change: Callable[[Messages], None]
) -> None:
    chat = Chat(sdk)
    await chat.send_text(fresh())
    await chat.send_text("two")
    known = chat.session
    change(chat.messages)
    assert await chat.recite() == read(chat.messages[:-1])
    assert chat.session != known
    carried = [(one["role"], True) for one in chat.messages[:-2]]
    assert await sound(store_url, chat.session) == [*carried, ("user", False), ("assistant", False)]
    known = chat.session
    assert await chat.recite() == read(chat.messages[:-1])
    assert chat.session == known, "from then on it is a stored session as any other"


async def test_a_request_that_is_repeated_with_its_key_gets_the_first_answer(sdk: AsyncOpenAI) -> None:
    async def ask(messages: Messages, key: str) -> tuple[str, str, str | None]:
        raw = await sdk.chat.completions.with_raw_response.create(
            model="obedient", messages=cast("Any", messages), extra_headers={"Idempotency-Key": key}
        )
        answer = raw.parse()
        return answer.id, raw.headers["x-session-id"], answer.choices[0].message.content

    keys = [f"k-{uuid.uuid4().hex}" for _ in range(2)]
    said: Messages = [chat_message("user", fresh())]
    first = await ask(said, keys[0])
    assert await ask(said, keys[0]) == first, "in a new session"
    more: Messages = [*said, chat_message("assistant", first[2]), chat_message("user", "two")]
    second = await ask(more, keys[1])
    assert second[1] == first[1]
    assert await ask(more, keys[1]) == second, "in a known one"
    for other, key in ((more, keys[0]), (said, keys[1])):
        with pytest.raises(openai.UnprocessableEntityError, match="with another request: use another key"):
            await ask(other, key)
    new: Messages = [*more, chat_message("assistant", second[2]), chat_message("user", "three")]
    at_once = await asyncio.gather(*(ask(new, f"{keys[0]}-3") for _ in range(3)))
    assert len(set(at_once)) == 1, "of requests at the same time, one starts a turn"


async def test_a_regenerated_answer_starts_a_new_session(sdk: AsyncOpenAI) -> None:
    chat = Chat(sdk)
    await chat.send_text(fresh())
    assert await chat.recite() == read(chat.messages[:-1])
    known = chat.session
    del chat.messages[-2:]
    assert await chat.recite() == read(chat.messages[:-1])
    assert chat.session != known


async def test_the_time_in_a_system_prompt_changes_nothing(sdk: AsyncOpenAI, server: Server) -> None:
    chat = Chat(sdk, chat_message("system", "It is 10:00."))
    await chat.send_text(fresh())
    known = chat.session
    for time in ("It is 10:01.", "It is 10:02."):
        chat.messages[0] = chat_message("system", time)
        assert await chat.recite() == read(chat.messages[:-1])
    chat.messages[0]["role"] = "developer"
    assert await chat.recite() == read([one for one in chat.messages[:-1] if one["role"] != "developer"])
    del chat.messages[0]
    assert await chat.recite() == read(chat.messages[:-1])
    assert chat.session == known
    assert not any("It is" in content for role, content in await stored(server, known) if role != "assistant")


async def test_a_failed_turn_is_a_part_of_its_session(sdk: AsyncOpenAI, server: Server) -> None:
    chat = Chat(sdk)
    await chat.send_text(fresh())
    known = chat.session
    with pytest.raises(openai.BadRequestError):
        await chat.send_text("fail")
    again = chat.copy()
    again.messages.pop()
    assert await again.recite() == read(again.messages[:-1])
    assert again.session != known, "that one holds a message that this chat does not"
    assert await chat.recite() == read(chat.messages[:-1])
    assert chat.session == known
    assert [content for role, content in await stored(server, known) if role == "user"][1:] == ["fail", "recite"]


async def test_two_messages_at_the_end_are_both_read(sdk: AsyncOpenAI, server: Server) -> None:
    chat = Chat(sdk)
    await chat.send_text(fresh())
    known = chat.session
    chat.messages += [chat_message("user", "one"), chat_message("user", "two")]
    assert await chat.recite() == read(chat.messages[:-1])
    assert chat.session == known
    unknown = Chat(sdk, chat_message("user", fresh()), chat_message("user", "one"))
    assert await unknown.recite() == read(unknown.messages[:-1])


async def test_of_a_named_session_the_messages_that_are_new_are_read(sdk: AsyncOpenAI, tmp_path: Path) -> None:
    session = f"s-{uuid.uuid4().hex}"
    chat = Chat(sdk, X_Session_Id=session)
    await chat.send_text(fresh())
    chat.messages += [chat_message("user", "one"), chat_message("user", "two")]
    assert await chat.recite() == read(chat.messages[:-1]), "two more than the last"
    with pytest.raises(openai.BadRequestError):
        await chat.send_text("fail")
    assert await chat.recite() == read(chat.messages[:-1]), "what failed is stored, and read once"
    lost = chat.copy()
    await lost.send_text("lost")
    chat.messages.append(chat_message("user", "lost"))  # its answer did not arrive
    assert (await chat.recite())[-3:] == read(
        [chat_message("user", "lost"), chat_message("assistant", "lost"), chat_message("user", "recite")]
    )
    alone = Chat(sdk, chat_message("user", "one"), chat_message("user", "two"), X_Session_Id=session)
    assert (await alone.recite())[-3:] == read([*alone.messages[:-1]]), "without the history before them"
    same = Chat(sdk, chat_message("user", "yes"), X_Session_Id=f"s-{uuid.uuid4().hex}")
    await same.send()
    same.messages.append(chat_message("user", "yes"))
    assert await same.recite() == read(same.messages[:-1]), "the same word twice is two messages"


async def test_messages_that_come_together_wait_together(sdk: AsyncOpenAI, server: Server, tmp_path: Path) -> None:
    gate, session = tmp_path / "gate", f"s-{uuid.uuid4().hex}"
    async with server.client() as http:
        place = f"/v1/sessions/{session}/messages"
        async with http.stream("POST", place, json={"text": f"hold {gate}"}) as response:
            await anext(response.aiter_lines())  # accepted
        chat = Chat(sdk, chat_message("user", f"hold {gate}"), chat_message("user", "one"), X_Session_Id=session)
        reading = asyncio.create_task(chat.recite())
        while not (await http.get(f"/v1/sessions/{session}/waiting")).json()["waiting"]:
            assert not reading.done()
            await asyncio.sleep(0.02)
        gate.touch()
        expected = [chat_message("user", f"hold {gate}"), chat_message("assistant", "begun ended"), *chat.messages[1:3]]
        assert await reading == read(expected)


async def test_a_restarted_server_knows_every_session(tmp_path: Path, sqlite_url: str) -> None:
    messages: Messages = []
    sessions: list[str] = []
    for number in range(3):
        with serving(tmp_path / str(number), sqlite_url) as server:
            base = f"{server.url}/v1"
            async with AsyncOpenAI(base_url=base, api_key="none", timeout=TIMEOUT_S, max_retries=0) as sdk:
                chat = Chat(sdk, *messages)
                assert await chat.recite() == read(chat.messages[:-1])
                messages, sessions = chat.messages, [*sessions, chat.session]
    assert len({*sessions}) == 1


# -- calls, results, files -----------------------------------------------------------------------------------------


def call(id_: str, name: str = "pick", arguments: str = '{"text": "this"}') -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "tool_calls": [{"id": id_, "type": "function", "function": function}]}


def result(id_: str, content: str) -> dict[str, Any]:
    return chat_message("tool", content, tool_call_id=id_)


async def test_calls_and_results_are_read_as_they_are_carried(sdk: AsyncOpenAI, store_url: str) -> None:
    chat = Chat(
        sdk,
        chat_message("user", fresh()),
        call("c1"),
        result("c1", '{"color": "red"}'),
        chat_message("assistant", "red it is"),
    )
    start = chat.messages[0]["content"]
    expected = [
        ["user", [start]],
        ["assistant", ["", {"c1": ["pick", {"text": "this"}]}]],
        ["tool", {"c1": {"color": "red"}}],
        ["assistant", ["red it is"]],
        ["user", ["recite"]],
    ]
    assert await chat.recite() == expected
    known = chat.session
    assert [role for role, _ in await sound(store_url, known)][:3] == ["user", "assistant", "tool"]
    assert (await chat.recite())[:5] == expected
    assert chat.session == known
    chat.messages[2] = result("c1", '{"color": "blue"}')
    assert (await chat.recite())[2] == ["tool", {"c1": {"color": "blue"}}]
    assert chat.session != known, "another result is another history"


async def test_results_at_the_end_of_an_unknown_history_are_read(sdk: AsyncOpenAI, store_url: str) -> None:
    chat = Chat(sdk, chat_message("user", fresh()), call("c1"), result("c1", "red"))
    assert await chat.send() == "the tool said {'result': 'red'}"
    known = chat.session
    assert [role for role, _ in await sound(store_url, known)] == ["user", "assistant", "tool", "assistant"]
    assert (await chat.recite())[2] == ["tool", {"c1": {"result": "red"}}]
    assert chat.session == known


async def test_calls_without_a_result_are_closed(sdk: AsyncOpenAI, server: Server, store_url: str) -> None:
    chat = Chat(sdk, chat_message("user", fresh()), call("c1"), chat_message("user", "never mind"), call("c2", "wipe"))
    assert [one for role, one in await chat.recite() if role == "tool"] == [{"c1": NO_RESULT}, {"c2": NO_RESULT}]
    known = chat.session
    await sound(store_url, known)
    async with server.client() as http:
        shown = (await http.get(f"/v1/sessions/{known}/messages")).json()["messages"]
        assert not any(one.get("approval") for message in shown for one in message["tool_calls"])
        assert await waits_of(http, known) == [], "a carried call is no question"
    await chat.recite()
    assert chat.session == known


async def test_a_result_without_its_call_is_quoted(sdk: AsyncOpenAI) -> None:
    chat = Chat(sdk, result("c1", "red"), chat_message("assistant", "red it is"))
    [[role, [quoted]], *rest] = await chat.recite()
    assert role == "user"
    assert '{"result": "red"}' in quoted
    assert rest == read([chat_message("assistant", "red it is"), chat_message("user", "recite")])


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        (
            [chat_message("user", "hi"), call("c", "adk_request_confirmation"), chat_message("user", "go")],
            "adk_request_confirmation",
        ),
        (
            [chat_message("user", "hi"), call("c", "adk_request_credential"), result("c", "{}")],
            "adk_request_credential",
        ),
        (
            [chat_message("user", "hi"), call("c", "transfer_to_agent"), result("c", "{}"), chat_message("user", "go")],
            "transfer_to",
        ),
        ([chat_message("user", "hi"), result("c", "{}")], "the tool messages answer none of the calls"),
        (
            [
                chat_message("user", "hi"),
                call("c"),
                call("d"),
                result("d", "{}"),
                chat_message("assistant", "x"),
                result("c", ""),
            ],
            "call",
        ),
        (
            [chat_message("user", "hi"), chat_message("assistant", "", tool_calls=[{"id": "c"}]), result("c", "{}")],
            "name of its",
        ),
    ],
)
async def test_forbidden_calls_in_a_history_are_refused_and_store_nothing(
    sdk: AsyncOpenAI, server: Server, messages: Messages, says: str
) -> None:
    async with server.client() as http:
        before = (await http.get("/v1/sessions")).json()
        with pytest.raises(openai.BadRequestError, match=says):
            await Chat(sdk, *messages).send()
        assert (await http.get("/v1/sessions")).json() == before


async def test_files_of_an_unknown_history_are_read(sdk: AsyncOpenAI, server: Server) -> None:
    mark = hashlib.sha256(PNG).hexdigest()[:12]
    gone = {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}}
    chat = Chat(sdk)
    chat.messages = [
        chat_message("user", [text(fresh()), picture(url_of(PNG))]),
        chat_message("assistant", "a picture"),
        chat_message("user", [text("and this?"), gone]),
        chat_message("assistant", "nothing"),
    ]
    answer = await chat.recite()
    assert answer[0][1][1] == mark
    assert answer[2][1] == ["and this?[file omitted: it could not be read]"]
    known = chat.session
    assert await chat.recite()
    assert chat.session == known


# -- conversations that front ends name ----------------------------------------------------------------------------


async def test_a_front_ends_chat_is_its_users_and_its_other_requests_are_no_part_of_it(sdk: AsyncOpenAI) -> None:
    start, chat_id = fresh("Hi"), uuid.uuid4().hex
    named = {"X_OpenWebUI_Chat_Id": chat_id, "X_OpenWebUI_User_Id": "ada"}
    chat = Chat(sdk, **named)
    await chat.send_text(start)
    title = Chat(sdk, **named)
    assert await title.recite() == [["user", ["recite"]]], "for a title, it carries no history"
    others = [
        Chat(sdk, *chat.messages),
        Chat(sdk, *chat.messages, **named | {"X_OpenWebUI_User_Id": "bob"}),
        Chat(sdk, *chat.messages, **named | {"X_OpenWebUI_Chat_Id": "another"}),
    ]
    for other in others:
        assert await other.recite() == read(other.messages[:-1])
    known = chat.session
    assert await chat.recite() == read(chat.messages[:-1])
    assert chat.session == known
    assert len({known, title.session, *(other.session for other in others)}) == 5


async def test_an_applications_conversation_is_one_session_of_its_user(sdk: AsyncOpenAI) -> None:
    more: dict[str, Any] = {"user": uuid.uuid4().hex, "metadata": {"thread_id": "1"}}
    first = Chat(sdk)
    await first.send_text("one", **more)
    alone = Chat(sdk)
    assert await alone.recite(**more) == read(
        [chat_message("user", "one"), chat_message("assistant", "one"), chat_message("user", "recite")]
    )
    assert alone.session == first.session
    assert await Chat(sdk).recite(**more | {"user": "another"}) == [["user", ["recite"]]]
    for less in ({"metadata": {"thread_id": "1"}}, {"user": more["user"]}):
        assert await Chat(sdk).recite(**cast("Any", less)) == [["user", ["recite"]]], "an id alone may be anybody's"
