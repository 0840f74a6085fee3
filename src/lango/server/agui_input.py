"""What a run of AG-UI asks for: a message, answers, results of the client's tools. Imports `ag_ui`, as its events do.

A client sends the whole conversation each time. Of it, only the end is new: the user's message, or what the client's
tools returned. Results that stand further up are taken, too, if their calls still wait: not every client begins a run
for each of them.

A user's message may bring files: any media part whose source carries the bytes, and the `binary` part that the protocol
had before 1.0. Nothing is fetched from elsewhere.
"""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile
from typing import Any, cast

from ag_ui.core import (
    ActivityMessage,
    AssistantMessage,
    AudioPart,
    DataSource,
    DocumentPart,
    FileSource,
    ImagePart,
    Message,
    ReasoningMessage,
    RunAgentInput,
    TextPart,
    ToolMessage,
    UserMessage,
    VideoPart,
)
from pydantic import ValidationError

from lango.messages import Attachment
from lango.server.auth import Caller
from lango.server.errors import Refused
from lango.server.files import file_of_base64, file_of_url, mark_of
from lango.server.served import Served
from lango.server.streams import TurnOf
from lango.store import SessionRecord, Turn
from lango.store.records import object_or_result
from lango.tools import Tool, client_tool

Results = Mapping[str, Mapping[str, Any]]
_LOOKED_AT = 50  # messages: a call that waits, or was answered just now, is one of the newest


def read_input(body: Mapping[str, Any]) -> RunAgentInput:
    """Read what a client sent; raise `Refused` where it is not AG-UI."""
    try:
        return RunAgentInput.model_validate({**body, "messages": [_upgraded(one) for one in body["messages"]]})
    except ValidationError as error:
        problems = {".".join(str(part) for part in one["loc"][:3]) for one in error.errors()}
        raise Refused(400, "BadRequest", f"this is not AG-UI's RunAgentInput: {', '.join(sorted(problems))}") from error


async def begin(here: Served, user: Caller, asked: RunAgentInput) -> list[TurnOf]:
    """Accept what a run asks for: the last message, or answers to what an earlier run asked."""
    tools = [client_tool(one.name, one.description, one.parameters) for one in asked.tools or ()]
    await here.door.check_tokens(user)
    said = [one for one in asked.messages if not isinstance(one, ActivityMessage | ReasoningMessage)]
    results = _results(said)
    if asked.resume:
        return await _resume(here, user, asked, tools, results)
    last = said[-1] if said else None
    if isinstance(last, ToolMessage):
        return [await _give(here, user, asked, tools, results, _last_ids(said))]
    text, files = (_text(last), _files(last)) if isinstance(last, UserMessage) else ("", [])
    if not isinstance(last, UserMessage) or not (text or files):
        raise Refused(
            400,
            "BadRequest",
            "messages: the last message must be the user's, with a text or a file, or a client tool's result",
        )
    # a run that is sent again is the same turn, as long as it says the same
    key = _key(asked.run_id, last.id, text, *map(mark_of, files))
    return [await here.turns.submit(user, asked.thread_id, text, key, files, client_tools=tools, results=results)]


async def _resume(
    here: Served, user: Caller, asked: RunAgentInput, tools: Sequence[Tool], results: Results
) -> list[TurnOf]:
    """Answer questions for approval; results that came along are taken first."""
    session = await here.session(user, asked.thread_id)
    waiting = {one.call.id for one in await here.store.client_calls(session)}
    turns = [await _give(here, user, asked, tools, results, waiting & {*results})] if waiting & {*results} else []
    for one in asked.resume or ():
        approved = one.status == "resolved" and _is_yes(one.payload)
        turn = here.turns.approve(user, asked.thread_id, one.interrupt_id, approved=approved, client_tools=tools)
        turns.append(await turn)
    return turns


async def _give(
    here: Served,
    user: Caller,
    asked: RunAgentInput,
    tools: Sequence[Tool],
    results: Results,
    new: Collection[str],
) -> TurnOf:
    """Take results. The same ones again are the same turn; where that one failed, a new run tries again from there."""
    session = await here.session(user, asked.thread_id)
    about = "results", await _maker(here, session, new), *sorted(new)
    key = _key(*about)
    for one in (key, _key(*about, "again", asked.run_id)):
        key, turn = one, await here.store.same_turn(session, one)
        record = await here.store.turn(Turn(session.key, turn)) if turn else None
        if turn and record and record.status in ("waiting", "running", "done"):
            return TurnOf(session, turn)
        if not turn:
            break
    waiting = {one.call.id for one in await here.store.client_calls(session)}
    brought = {call_id: result for call_id, result in results.items() if call_id in waiting or call_id in new}
    return await here.turns.give(user, asked.thread_id, brought, key, tools)


async def _maker(here: Served, session: SessionRecord, calls: Collection[str]) -> str:
    """Return the event that made some calls: some models count theirs from 1 again, and the newest is meant."""
    newest = await here.store.messages_page(session, limit=_LOOKED_AT)
    for one in reversed(newest):
        if one.message and one.message.role == "assistant" and any(call.id in calls for call in one.message.tool_calls):
            return one.event_id
    return ""


def _results(said: Sequence[Message]) -> dict[str, dict[str, Any]]:
    """Return what the client's tools returned; where the id of a call comes again, for the newest."""
    found: dict[str, dict[str, Any]] = {}
    for one in said:
        if isinstance(one, ToolMessage):
            found[one.tool_call_id] = _result(one)
        elif isinstance(one, AssistantMessage):
            for call in one.tool_calls or ():
                found.pop(call.id, None)
    return found


def _last_ids(said: Sequence[Message]) -> set[str]:
    """Return the calls that the messages at the end are the results of."""
    found = takewhile(lambda one: isinstance(one, ToolMessage), reversed(said))
    return {one.tool_call_id for one in found if isinstance(one, ToolMessage)}


def _result(message: ToolMessage) -> dict[str, Any]:
    """Return what a client's tool returned: a JSON object as it is, any other text as the result, a failure as one."""
    content = message.content
    text = content if isinstance(content, str) else "".join(part.text for part in content if part.type == "text")
    if message.error:
        return {"error": message.error} | ({"result": text} if text else {})
    try:
        return object_or_result(text)
    except RecursionError:
        return {"result": text}


def _is_yes(payload: Any) -> bool:
    match payload:
        case True | {"approved": True}:
            return True
        case _:
            return False


def _text(message: UserMessage) -> str:
    if isinstance(message.content, str):
        return message.content
    return "".join(part.text for part in message.content if isinstance(part, TextPart))


def _files(message: UserMessage) -> list[Attachment]:
    """Return the files that a message brings; raise `Refused` for one whose bytes do not come along."""
    parts = () if isinstance(message.content, str) else message.content
    media = [part for part in parts if not isinstance(part, TextPart)]
    return [_file(number, part) for number, part in enumerate(media, 1)]


def _file(number: int, part: ImagePart | AudioPart | VideoPart | DocumentPart) -> Attachment:
    match part.metadata:
        case {"filename": str(name)}:
            pass
        case _:
            name = None
    match part.source:
        case DataSource() as source:
            return file_of_base64(number, name, source.mime_type, source.value)
        case FileSource():
            raise Refused(
                400, "BadRequest", f"messages: no files are kept here by an id; send file {number} in base64, as data"
            )
        case source:
            return file_of_url(number, name, source.value)


def _upgraded(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message with the media parts of 1.0 in the place of `binary` ones, as AG-UI's own client does it."""
    content = message.get("content")
    if message.get("role") != "user" or not isinstance(content, list):
        return message
    return {**message, "content": [_upgraded_part(part) for part in cast("list[Any]", content)]}


def _upgraded_part(part: Any) -> Any:
    match part:
        case {"type": "binary", "mimeType": str(mime_type)} | {"type": "binary", "mime_type": str(mime_type)}:
            fields = cast("dict[str, Any]", part)
        case _:
            return part
    for name, kind in (("data", "data"), ("url", "url"), ("id", "file")):
        if fields.get(name):
            source = {"type": kind, "value": fields[name], "mimeType": mime_type}
            family = mime_type.partition("/")[0].lower()
            media = family if family in ("image", "audio", "video") else "document"
            return {"type": media, "source": source, "metadata": {"filename": fields.get("filename")}}
    return part


def _key(*about: str) -> str:
    return f"agui-{hashlib.sha256(json.dumps(about).encode()).hexdigest()}"
