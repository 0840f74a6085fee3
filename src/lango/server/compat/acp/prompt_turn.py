"""Run a prompt of an editor: read its message, follow the turn, and ask for permission where a tool needs approval.

Imports `acp`.
"""

import asyncio
import uuid
from collections.abc import Sequence
from contextlib import aclosing
from typing import Literal

from acp import schema
from acp.interfaces import Client

from lango.errors import TurnCancelled, WaitNotOpen
from lango.events import TurnDone, TurnError, Usage
from lango.messages import Attachment
from lango.server.compat.acp.session_updates import ToolCalls, TurnUpdates
from lango.server.compat.inline_files import read_base64_file
from lango.server.context import AgentUser
from lango.server.errors import bad_request, turn_api_error
from lango.server.streaming.turn_streams import TurnRef
from lango.submissions import SubmittedAnswer, SubmittedMessage
from lango.waits import Answer, ApprovalWait, Approve, NewGrant, Refuse

StopReason = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]
_STOP_REASONS: dict[str, StopReason] = {
    "max_tokens": "max_tokens",
    "length": "max_tokens",
    "safety": "refusal",
    "content_filter": "refusal",
}
_ALLOW, _ALLOW_ALWAYS, _REJECT = "allow", "allow-always", "reject"
_ANSWERS: dict[str, Answer] = {_ALLOW: Approve(), _ALLOW_ALWAYS: Approve(NewGrant()), _REJECT: Refuse()}
_OPTIONS = [
    schema.PermissionOption(option_id=_ALLOW, name="Allow", kind="allow_once"),
    schema.PermissionOption(option_id=_ALLOW_ALWAYS, name="Always allow in this session", kind="allow_always"),
    schema.PermissionOption(option_id=_REJECT, name="Reject", kind="reject_once"),
]
ContentBlock = (
    schema.TextContentBlock
    | schema.ImageContentBlock
    | schema.AudioContentBlock
    | schema.ResourceContentBlock
    | schema.EmbeddedResourceContentBlock
)


class PromptTurn:
    """A prompt and the turns that answer it: the first, and those that continue with an approval."""

    def __init__(self, user: AgentUser, client: Client, session_id: str) -> None:
        self._user = user
        self._client = client
        self._session_id = session_id
        self._turn: TurnRef | None = None
        self._asking: asyncio.Future[schema.RequestPermissionResponse] | None = None
        self._is_cancelled = False
        self._usage = Usage()

    async def run(self, message: SubmittedMessage) -> schema.PromptResponse:
        """Return why the answer ended. Raise `ApiError` if a turn failed."""
        await self._user.check_token_quota()
        calls = ToolCalls(uuid.uuid4().hex)
        reason = await self._follow_all(await self._continue_paused(calls), calls)
        if not self._is_cancelled:  # the message would close a request that an earlier process left open
            reason = await self._follow_all(await self._user.submit(self._session_id, message), calls)
        return schema.PromptResponse(
            stop_reason="cancelled" if self._is_cancelled else _STOP_REASONS.get(reason, "end_turn"),
            usage=schema.Usage(
                total_tokens=self._usage.input_tokens + self._usage.output_tokens,
                input_tokens=self._usage.input_tokens,
                output_tokens=self._usage.output_tokens,
                thought_tokens=self._usage.thought_tokens,
                cached_read_tokens=self._usage.cached_tokens,
                cached_write_tokens=self._usage.cache_write_tokens,
            ),
        )

    async def cancel(self) -> None:
        """Stop the turn; what it waits for is closed."""
        self._is_cancelled = True
        if self._asking is not None:
            self._asking.cancel()
        if self._turn is not None:
            await self._user.stop(self._turn)

    async def _continue_paused(self, calls: ToolCalls) -> TurnRef | None:
        """Ask for the approvals that the session waits for; return the turn that continues with the first answer."""
        session = await self._user.get_session(self._session_id)
        newest = await self._user.runtime.turns.newest(session)
        waits = [wait for wait in await self._user.waits(self._session_id) if isinstance(wait, ApprovalWait)]
        if newest is None or not waits:
            return None
        self._turn = TurnRef(session, newest)
        for wait in waits:
            update = calls.start(wait.call_id, wait.tool, wait.arguments, "pending")
            await self._client.session_update(self._session_id, update)
        return await self._continue(self._turn, waits, calls)

    async def _follow_all(self, turn: TurnRef | None, calls: ToolCalls) -> str:
        """Follow a turn and those that continue with approvals; return why the last one ended."""
        reason = ""
        while turn is not None and reason != "cancelled":
            self._turn = turn
            if self._is_cancelled:
                await self._user.stop(turn)
            reason, waits = await self._follow(turn, calls)
            turn = await self._continue(turn, waits, calls)
        return reason

    async def _follow(self, turn: TurnRef, calls: ToolCalls) -> tuple[str, list[ApprovalWait]]:
        """Show a turn to its end; return why it ended, and the approvals that it waits for."""
        updates = TurnUpdates(calls)
        async with aclosing(self._user.turns.follow_answer(turn)) as items:
            async for item in items:
                if item is None:
                    continue
                for update in updates.add(item.event):
                    await self._client.session_update(self._session_id, update)
                match item.event:
                    case TurnDone(usage=usage, finish_reason=reason, waits=waits, status=status):
                        self._usage += usage
                        approvals = [wait for wait in waits if isinstance(wait, ApprovalWait)]
                        return "cancelled" if status == "cancelled" else reason, approvals
                    case TurnError(fatal=True, error=TurnCancelled.__name__):
                        self._is_cancelled = True
                        return "cancelled", []
                    case TurnError(fatal=True):
                        raise turn_api_error(item.event)
                    case _:
                        pass
        return "", []

    async def _continue(self, turn: TurnRef, waits: list[ApprovalWait], calls: ToolCalls) -> TurnRef | None:
        """Ask for the first approval that is still open; return the turn that continues with the answer, if any."""
        open_ids = {wait.id for wait in await self._user.waits(self._session_id)} if waits else set[str]()
        wait = next((wait for wait in waits if wait.id in open_ids), None)
        if wait is not None:
            answer = await self._ask(wait, calls)
            if answer is None:
                self._is_cancelled = True
                await self._user.stop(turn)
                return None
            try:
                return await self._user.submit(self._session_id, SubmittedAnswer(wait.id, answer))
            except WaitNotOpen:
                pass  # answered elsewhere while the editor asked
        number = await self._user.runtime.turns.next(turn.session, turn.turn) if waits else None
        return None if number is None else TurnRef(turn.session, number)

    async def _ask(self, wait: ApprovalWait, calls: ToolCalls) -> Answer | None:
        """Return the person's answer, or None if the prompt is cancelled."""
        if self._is_cancelled:
            return None
        request = self._client.request_permission(self._session_id, calls.request(wait), _OPTIONS)
        self._asking = asyncio.ensure_future(request)
        try:
            outcome = (await self._asking).outcome
        except asyncio.CancelledError:
            if not self._is_cancelled:  # the connection ends, and the approval stays open
                raise
            return None
        finally:
            self._asking = None
        return _ANSWERS.get(outcome.option_id, Refuse()) if isinstance(outcome, schema.AllowedOutcome) else None


def read_prompt(blocks: Sequence[ContentBlock]) -> SubmittedMessage:
    """Return the message of a prompt. Raise `ApiError` for an empty one, or a file that is not in base64."""
    texts, files = list[str](), list[Attachment]()
    for block in blocks:
        match block:
            case schema.TextContentBlock():
                texts.append(block.text)
            case schema.ResourceContentBlock():  # a file that the agent may read itself, if it has a tool for it
                texts.append(f"[{block.name}]({block.uri})")
            case schema.EmbeddedResourceContentBlock(resource=schema.TextResourceContents() as resource):
                texts.append(f'\n<file uri="{resource.uri}">\n{resource.text}\n</file>\n')
            case schema.EmbeddedResourceContentBlock(resource=schema.BlobResourceContents() as resource):
                name = resource.uri.rstrip("/").rpartition("/")[2]
                files.append(read_base64_file(len(files) + 1, name, resource.mime_type, resource.blob))
            case schema.ImageContentBlock() | schema.AudioContentBlock():
                files.append(read_base64_file(len(files) + 1, None, block.mime_type, block.data))
            case _:
                pass
    text = "".join(texts)
    if not text and not files:
        raise bad_request("prompt: the message is empty; send a text or a file")
    return SubmittedMessage(text, files)
