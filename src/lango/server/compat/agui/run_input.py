"""Parse an AG-UI run and submit its message, answers or tool results as turns. Imports `ag_ui`, which is optional.

A client sends the whole conversation each time. Only its end is new: the user's messages since the last answer, or
results of the client's tools. Some clients do not start a run for each result, so earlier results are used, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, assert_never, cast

import msgspec
from ag_ui import core as agui
from msgspec import Struct
from msgspec.structs import replace
from pydantic import TypeAdapter, ValidationError

from lango.errors import GrantRefused
from lango.history.pairing import parse_result_text
from lango.json_values import as_object, convert
from lango.messages import Attachment, Message, ToolCall
from lango.server.compat.agui.run_state import changed_keys, read_client_state, store_state
from lango.server.compat.edited_history import apply_edit
from lango.server.compat.inline_files import (
    attachments_of_message,
    file_fingerprint,
    read_base64_file,
    read_user_message,
)
from lango.server.compat.linked_files import FileLink, LinkedFiles, load_links
from lango.server.compat.resent_history import (
    FILE_LEFT_OUT,
    Results,
    check_last,
    client_instruction,
    idempotency_key,
    result_message,
    results_of,
    submit_end,
    submit_results,
)
from lango.server.compat.wait_answers import value_to_answer
from lango.server.context import AgentUser
from lango.server.errors import ApiError, bad_request
from lango.server.streaming.turn_streams import TurnRef
from lango.sessions import SessionInfo
from lango.submissions import (
    ModelOptions,
    SubmittedAnswer,
    SubmittedMessage,
    TurnRequest,
)
from lango.threads import run_in_thread
from lango.tools.client_tool_definitions import read_client_tools
from lango.waits import (
    Answer,
    ApprovalWait,
    Approve,
    CredentialWait,
    EventWait,
    InputWait,
    LongRunningWait,
    NewGrant,
    Refuse,
    TimerWait,
    ToolResultWait,
    Wait,
)

_MAX_PROBLEMS = 10
_KEY_PREFIX_LENGTH = len("agui-") + 32
_MESSAGE: TypeAdapter[agui.Message] = TypeAdapter(agui.Message)


def parse_run_input(body: Mapping[str, Any]) -> agui.RunAgentInput:
    """Parse a request; raise `ApiError` if it is not AG-UI. Call it in a thread.

    Messages are parsed one by one: a whole conversation in one call would hold the interpreter's lock for too long.
    """
    try:
        run_input = agui.RunAgentInput.model_validate({**body, "messages": []})
    except ValidationError as error:
        raise _not_agui(error) from error
    run_input.messages = [_parse_message(number, message) for number, message in enumerate(body["messages"])]
    return run_input


def _parse_message(number: int, message: Mapping[str, Any]) -> agui.Message:
    try:
        return _MESSAGE.validate_python(_upgrade_message(message))
    except ValidationError as error:
        raise _not_agui(error, "messages", str(number)) from error


def _not_agui(error: ValidationError, *place: str) -> ApiError:
    found = error.errors(include_url=False, include_input=False)[:_MAX_PROBLEMS]
    problems = {f"{'.'.join([*place, *map(str, problem['loc'])][:3])}: {problem['msg'][:200]}" for problem in found}
    return bad_request(f"this is not a valid AG-UI RunAgentInput: {'; '.join(sorted(problems))}")


async def submit_run(user: AgentUser, run_input: agui.RunAgentInput) -> tuple[list[TurnRef], dict[str, Any]]:
    """Submit a run. Return its turns, and what it changes in the state of the session."""
    sent = read_client_state(run_input.state)
    session = await user.find_session(run_input.thread_id)
    state_delta = await run_in_thread(changed_keys, sent, session)
    user.sessions.check_state(state_delta)
    await user.check_token_quota()  # before the server fetches files
    run = await _Run.read(user, run_input)
    if (repeated := await run.find(user, session)) is not None:
        return [repeated], state_delta  # the state that came with it is stored
    history = await run.apply_edit(user, session)
    if history is not None:  # the state is that before the edited message
        session = await user.find_session(run_input.thread_id)
        state_delta = await run_in_thread(changed_keys, sent, session)
    return await _submit(user, run_input, run, session, state_delta, history), state_delta


_Sent = agui.UserMessage | agui.AssistantMessage | agui.ToolMessage
"""What is part of a conversation: others are instructions, or only for the client."""


class _Run(Struct, frozen=True):
    """What a run brings."""

    messages: Sequence[Message]
    """The conversation: messages of the user and the agent, and results."""
    request: TurnRequest
    has_new_message: bool = False
    """Whether the last message is a new one of the user; otherwise the run brings answers or results."""
    key_prefix: str = ""
    """How the idempotency keys of all runs begin whose new message has the same id."""

    @classmethod
    async def read(cls, user: AgentUser, run_input: agui.RunAgentInput) -> "_Run":
        """Read a run. Raise `ApiError` or `ClientToolRefused` for one that cannot be used."""
        tools = await read_client_tools([(one.name, one.description, one.parameters) for one in run_input.tools or ()])
        instruction = client_instruction(_instructions(run_input), user.settings.server)
        options = ModelOptions(instruction=instruction) if instruction else None
        request = TurnRequest(client_tools=tools, options=options)
        sent = [message for message in run_input.messages if isinstance(message, _Sent)]
        linked = await load_links(_file_links(sent), user.settings.server)
        messages = await run_in_thread(_read_messages, sent, linked)
        if run_input.resume:
            return cls(messages, request)
        check_last(messages)
        new = messages[-1]
        if new.role == "tool":
            return cls(messages, request)
        # a repeated run with the same content is the same turn
        id_ = sent[-1].id
        prefix = idempotency_key("agui", id_)[:_KEY_PREFIX_LENGTH]
        files = map(file_fingerprint, attachments_of_message(new))
        key = idempotency_key(prefix, run_input.run_id, id_, new.content, *files)
        return cls(messages, replace(request, idempotency_key=key), has_new_message=True, key_prefix=prefix)

    async def find(self, user: AgentUser, session: SessionInfo | None) -> TurnRef | None:
        """Return the turn of the same run, if it was submitted before."""
        key = self.request.idempotency_key
        known = await user.runtime.turns.find_by_key(session, key) if session and key else None
        return TurnRef(session, known.turn) if session and known else None

    async def apply_edit(self, user: AgentUser, session: SessionInfo | None) -> Sequence[Message] | None:
        """Rewind the session if the client edited its conversation; see `lango.server.compat.edited_history`."""
        if session is None or not self.has_new_message:
            return None
        sent_before = await user.runtime.turns.message_of_key(session, self.key_prefix)
        texts = [replace(one, tool_calls=()) for one in self.messages if one.role == "user" or one.content]
        return await apply_edit(user, session, texts, sent_before)


async def _submit(
    user: AgentUser,
    run_input: agui.RunAgentInput,
    run: _Run,
    session: SessionInfo | None,
    state_delta: Mapping[str, Any],
    edited: Sequence[Message] | None,
) -> list[TurnRef]:
    """Submit the last message of a run, or its answers to interrupts of an earlier run."""
    if not run.has_new_message:
        await store_state(user, session, state_delta)
    if run_input.resume:
        return await _submit_answers(user, run_input, run.request, results_of(run.messages))
    thread_id, new = run_input.thread_id, run.messages[-1]
    if edited is not None:
        files = attachments_of_message(new)
        message = SubmittedMessage(new.content, files, state_delta, {}, edited, run.request)
        return [await user.submit(thread_id, message)]
    attempt = run_input.run_id
    return [await submit_end(user, thread_id, run.messages, run.request, attempt, state_delta=state_delta)]


def _instructions(run_input: agui.RunAgentInput) -> Iterator[str]:
    """Return the texts of a run's system and developer messages, and its context."""
    for message in run_input.messages:
        if isinstance(message, agui.SystemMessage | agui.DeveloperMessage):
            yield message.content
    for item in run_input.context or ():
        if item.value.strip():
            yield f"{item.description}:\n{item.value}" if item.description.strip() else item.value


def _file_links(sent: Sequence[_Sent]) -> list[FileLink]:
    """Return where the files of the user's messages are that are not in the messages."""
    contents = [message.content for message in sent if isinstance(message, agui.UserMessage)]
    parts = [part for content in contents if not isinstance(content, str) for part in content]
    return [_link(part) for part in parts if not isinstance(part, agui.TextPart)]


def _read_messages(sent: Sequence[_Sent], linked: LinkedFiles) -> list[Message]:
    """Return the messages of a conversation. Raise `ApiError` for an unreadable file in the last one."""
    return [_read_message(message, linked, last=message is sent[-1]) for message in sent]


def _read_message(message: _Sent, linked: LinkedFiles, *, last: bool) -> Message:
    match message:
        case agui.UserMessage(content=content):
            parts = [agui.TextPart(text=content)] if isinstance(content, str) else content
            text = "".join(part.text for part in parts if isinstance(part, agui.TextPart))
            readers = [partial(_read_file, part, linked) for part in parts if not isinstance(part, agui.TextPart)]
            return read_user_message(text, readers, last=last)
        case agui.AssistantMessage(content=text, tool_calls=calls):
            return Message(
                "assistant", text or "", tuple(ToolCall(call.id, call.function.name) for call in calls or ())
            )
        case agui.ToolMessage():
            return result_message(message.tool_call_id, _result(message))
        case _ as unexpected:
            assert_never(unexpected)


async def _submit_answers(
    user: AgentUser, run_input: agui.RunAgentInput, request: TurnRequest, results: Results
) -> list[TurnRef]:
    """Submit answers to requests for approval or input, after any results in the same run."""
    session = await user.get_session(run_input.thread_id)
    open_calls = await user.runtime.turns.client_calls(session)
    turns: list[TurnRef] = []
    if new := open_calls & results.keys():
        thread_id, run_id = run_input.thread_id, run_input.run_id
        turns.append(await submit_results(user, thread_id, results, new, request, run_id))
    waits = await user.waits(run_input.thread_id)
    for entry in run_input.resume or ():
        wait = next((wait for wait in waits if _is_of(wait, entry.interrupt_id)), None)
        match wait:
            case InputWait() if entry.status != "resolved":
                await user.runtime.cancel(run_input.thread_id, user_id=user.id)
            case LongRunningWait() if entry.status != "resolved":
                pass  # its result may still come
            case CredentialWait() | TimerWait() | EventWait() if entry.status != "resolved":
                await user.runtime.cancel_wait(run_input.thread_id, wait.id, user_id=user.id)
            case _:
                wait_id = wait.id if wait else entry.interrupt_id
                submitted = SubmittedAnswer(wait_id, _read_answer(wait, entry), replace(request, idempotency_key=None))
                turns.append(await user.submit(run_input.thread_id, submitted))
    return turns


def _is_of(wait: Wait, interrupt_id: str) -> bool:
    """Whether an interrupt is about a wait; clients know those for calls by the ids of the calls."""
    if isinstance(wait, ApprovalWait | ToolResultWait):
        return interrupt_id in (wait.id, wait.call_id)
    return interrupt_id == wait.id


def _read_answer(wait: Wait | None, entry: agui.ResumeEntry) -> Answer:
    """Read the answer to a wait; what does not approve a call refuses it."""
    if wait is not None and not isinstance(wait, ApprovalWait):
        return value_to_answer(wait, entry.payload)
    match entry.status, entry.payload:
        case "resolved", True | {"approved": True}:
            return Approve(_grant_of(as_object(entry.payload).get("grant")))
        case _, {"reason": str(reason)}:
            return Refuse(reason)
        case _:
            return Refuse()


def _result(message: agui.ToolMessage) -> dict[str, Any]:
    """Return the result of a client's tool, with its error if it failed."""
    content = message.content
    parts = (
        [content]
        if isinstance(content, str)
        else [part.text if part.type == "text" else FILE_LEFT_OUT for part in content]
    )
    text = "".join(parts)
    if message.error:
        return {"error": message.error} | ({"result": text} if text else {})
    return parse_result_text(text)


_FilePart = agui.ImagePart | agui.AudioPart | agui.VideoPart | agui.DocumentPart


def _link(part: _FilePart) -> FileLink:
    if isinstance(part.source, agui.DataSource):
        return FileLink("")
    is_upload = isinstance(part.source, agui.FileSource)
    return FileLink(part.source.value, is_upload, is_image=isinstance(part, agui.ImagePart) and not is_upload)


def _read_file(part: _FilePart, linked: LinkedFiles, number: int) -> Attachment:
    match part.metadata:
        case {"filename": str(name)}:
            pass
        case _:
            name = None
    match part.source:
        case agui.DataSource() as source:
            return read_base64_file(number, name, source.mime_type, source.value)
        case _:
            return linked.read(number, name, _link(part))


def _upgrade_message(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert `binary` parts of a message to media parts of 1.0, as AG-UI's own client does."""
    content = message.get("content")
    if message.get("role") != "user" or not isinstance(content, list):
        return message
    return {**message, "content": [_upgrade_part(part) for part in cast("list[Any]", content)]}


def _upgrade_part(part: Any) -> Any:
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


def _grant_of(grant: Any) -> NewGrant | None:
    """Return the grant that an approval brings. Raise `GrantRefused` if it is malformed."""
    try:
        return convert(grant, NewGrant | None)
    except msgspec.ValidationError as error:
        raise GrantRefused(f"grant: {error}") from error
