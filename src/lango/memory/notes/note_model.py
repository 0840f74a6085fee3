"""Ask a model for notes, and count the tokens that it used."""

import asyncio
import functools

from msgspec import Struct

from lango.errors import ProviderProtocolError
from lango.history import count_tokens
from lango.memory.notes.note_format import MAX_ANSWER_CHARACTERS, PROMPT_END, RETRY_PROMPT, Note, Span, parse_notes
from lango.messages import Message
from lango.providers.protocol import Finish, Provider, Request, TextDelta, ThoughtDelta, closing_stream
from lango.providers.reply_assembly import Reply, ReplyAssembler

_MIN_ANSWER_TOKENS = 200
_MAX_READ_CHARACTERS = 5 * MAX_ANSWER_CHARACTERS  # thoughts included


class TokensUsed(Struct):
    """Tokens of all model calls for one batch."""

    input_tokens: int = 0
    output_tokens: int = 0


class MemoryModel(Struct, frozen=True):
    """The model that writes observations and reflections."""

    provider: Provider
    model: str
    context_tokens: int | None = None

    @property
    def name(self) -> str:
        """The name as users write it: `provider/model`."""
        return f"{self.provider.name}/{self.model}"

    async def ask_for_notes(
        self, prompt: str, shown: str, span: Span, used: TokensUsed, *, lenient: bool
    ) -> list[Note]:
        """Return the model's notes on `shown`, after two requests at most.

        Only the second answer is read leniently. No notes can be correct: a piece of a long message may be noise, and
        must not stop the rest from being observed.
        """
        for system, last in ((prompt, False), (prompt + RETRY_PROMPT, True)):
            answer = await self._complete(system, shown + PROMPT_END, used)
            parse = functools.partial(parse_notes, answer, span, system + PROMPT_END, shown=shown)
            if found := await asyncio.to_thread(parse, lenient=lenient and last):
                return found
        return []

    async def _complete(self, system: str, shown: str, used: TokensUsed) -> str:
        shown_tokens = await asyncio.to_thread(count_tokens, shown)
        max_tokens = self._max_answer_tokens(shown_tokens)
        reply = await self._reply(Request(self.model, (Message("user", shown),), system=system, max_tokens=max_tokens))
        if reply.finish.reason in ("error", "safety"):
            reason = reply.finish.detail or reply.finish.reason
            raise ProviderProtocolError(f"no notes: {reason}", provider=self.name)
        text = reply.text[:MAX_ANSWER_CHARACTERS]
        usage = reply.usage
        used.input_tokens += shown_tokens + count_tokens(system) if usage.input_tokens is None else usage.input_tokens
        if usage.output_tokens is None:
            used.output_tokens += await asyncio.to_thread(count_tokens, text)
        else:
            used.output_tokens += usage.output_tokens
        return text

    async def _reply(self, request: Request) -> Reply:
        """Return the whole reply, or the beginning of one that does not end."""
        assembler = ReplyAssembler(self.provider.name)
        characters = 0
        async with closing_stream(self.provider.stream(request)) as deltas:
            async for delta in deltas:
                assembler.add(delta)
                characters += len(delta.text) if isinstance(delta, TextDelta | ThoughtDelta) else 0
                if characters > _MAX_READ_CHARACTERS and not isinstance(delta, Finish):
                    assembler.add(Finish("length"))
                    break
        return assembler.reply()

    def _max_answer_tokens(self, shown_tokens: int) -> int | None:
        """Limit the notes of a small model to the length of their subject: it repeats itself, and does not reason."""
        if self.context_tokens is None:
            return None
        return min(max(_MIN_ANSWER_TOKENS, shown_tokens), self.context_tokens // 4)
