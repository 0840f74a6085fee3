"""What a run of AG-UI asks for: a message, answers, results of the client's tools. Imports `ag_ui`, as its events do.

A client sends the whole conversation each time. Of it, only the end is new: the user's messages since the last answer,
or what the client's tools returned. Not every client begins a run for each result: those that stand further up are
taken, too.

A user's message may bring files: any media part whose source carries the bytes, and the `binary` part that the protocol
had before 1.0. Nothing is fetched from elsewhere.
"""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
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
from pydantic import TypeAdapter, ValidationError

from lango import messages
from lango.messages import Attachment
from lango.server.compat.inline_files import NOT_READ, file_of_base64, file_of_url, files_of, mark_of
from lango.server.compat.resent_history import (
    LEFT_OUT,
    Results,
    Spoken,
    answered_last,
    give,
    not_stored,
    read_result,
    results_in,
)
from lango.server.context import Served
from lango.server.errors import Refused
from lango.server.security.auth import Caller
from lango.server.streaming.turn_streams import TurnOf
from lango.tools import Tool
from lango.tools.client_tool_definitions import read_client_tools

_MAX_PROBLEMS = 10
_MESSAGE: TypeAdapter[Message] = TypeAdapter(Message)


def read_input(body: Mapping[str, Any]) -> RunAgentInput:
    """Read what a client sent; raise `Refused` where it is not AG-UI. Call it in a thread.

    Messages are read one by one: a whole conversation in one call would hold the interpreter's lock for too long.
    """
    try:
        asked = RunAgentInput.model_validate({**body, "messages": []})
    except ValidationError as error:
        raise _not_agui(error) from error
    asked.messages = [_read_message(number, one) for number, one in enumerate(body["messages"])]
    return asked


def _read_message(number: int, message: Mapping[str, Any]) -> Message:
    try:
        return _MESSAGE.validate_python(_upgraded(message))
    except ValidationError as error:
        raise _not_agui(error, "messages", str(number)) from error


def _not_agui(error: ValidationError, *place: str) -> Refused:
    found = error.errors(include_url=False, include_input=False)[:_MAX_PROBLEMS]
    problems = {".".join([*place, *map(str, one["loc"])][:3]) for one in found}
    return Refused(400, "BadRequest", f"this is not AG-UI's RunAgentInput: {', '.join(sorted(problems))}")


async def begin(here: Served, user: Caller, asked: RunAgentInput) -> list[TurnOf]:
    """Accept what a run asks for: the last message, or answers to what an earlier run asked."""
    tools = await read_client_tools([(one.name, one.description, one.parameters) for one in asked.tools or ()])
    await here.door.check_tokens(user)
    said = [one for one in asked.messages if not isinstance(one, ActivityMessage | ReasoningMessage)]
    spoken = await asyncio.to_thread(lambda: [_spoken(one) for one in said])  # ten thousand results, perhaps
    results = results_in(spoken)
    if asked.resume:
        return await _resume(here, user, asked, tools, results)
    last = said[-1] if said else None
    if isinstance(last, ToolMessage):
        new = answered_last(spoken)
        return [await give(here, user, asked.thread_id, results, new, tools, asked.run_id)]
    asks = _user(last, last=True) if isinstance(last, UserMessage) else messages.Message("user")
    if not isinstance(last, UserMessage) or not (asks.content or asks.media):
        raise Refused(
            400,
            "BadRequest",
            "messages: the last message must be the user's, with a text or a file, or a client tool's result",
        )
    # a run that is sent again is the same turn, as long as it says the same
    files = files_of(asks)
    key = _key(asked.run_id, last.id, asks.content, *map(mark_of, files))
    newest = sum(1 for _ in takewhile(lambda one: isinstance(one, UserMessage), reversed(said)))
    users = [one for one in (said if newest > 1 else [last]) if isinstance(one, UserMessage)]
    history = await not_stored(here, user, asked.thread_id, [*map(_user, users[:-1]), asks], newest)
    turn = here.turns.submit(
        user, asked.thread_id, asks.content, key, files, client_tools=tools, results=results, history=history
    )
    return [await turn]


async def _resume(
    here: Served, user: Caller, asked: RunAgentInput, tools: Sequence[Tool], results: Results
) -> list[TurnOf]:
    """Answer questions for approval; results that came along are taken first."""
    session = await here.session(user, asked.thread_id)
    new = {one.call.id for one in await here.store.client_calls(session)} & results.keys()
    turns = [await give(here, user, asked.thread_id, results, new, tools, asked.run_id)] if new else []
    for one in asked.resume or ():
        approved = one.status == "resolved" and _is_yes(one.payload)
        turn = here.turns.approve(user, asked.thread_id, one.interrupt_id, approved=approved, client_tools=tools)
        turns.append(await turn)
    return turns


def _spoken(message: Message) -> Spoken:
    match message:
        case ToolMessage():
            return Spoken(answers=message.tool_call_id, result=_result(message))
        case AssistantMessage():
            return Spoken(makes=tuple(call.id for call in message.tool_calls or ()))
        case _:
            return Spoken()


def _result(message: ToolMessage) -> dict[str, Any]:
    """Return what a client's tool returned, a failure as one."""
    content = message.content
    parts = [content] if isinstance(content, str) else [one.text if one.type == "text" else LEFT_OUT for one in content]
    text = "".join(parts)
    if message.error:
        return {"error": message.error} | ({"result": text} if text else {})
    return read_result(text)


def _is_yes(payload: Any) -> bool:
    match payload:
        case True | {"approved": True}:
            return True
        case _:
            return False


def _user(message: UserMessage, *, last: bool = False) -> messages.Message:
    """Return a user's message. Raise `Refused` for a file that cannot be read, if it is the last one's."""
    try:
        files, note = _files(message), ""
    except Refused:
        if last:
            raise
        files, note = list[Attachment](), NOT_READ
    media = [messages.Media(file.mime_type, file.data, name=file.name) for file in files]
    return messages.Message("user", _text(message) + note, media=tuple(media))


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
    digest = hashlib.sha256()
    for one in about:
        data = one.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data) + data)
    return f"agui-{digest.hexdigest()}"
