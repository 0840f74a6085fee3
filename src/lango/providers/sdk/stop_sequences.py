"""Cut a stream at the first stop sequence, for models whose API has none."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from lango.providers.protocol import Delta, Finish, TextDelta, UsageDelta


async def stop_at_sequences(deltas: AsyncGenerator[Delta, None], stops: Sequence[str]) -> AsyncGenerator[Delta, None]:
    """Yield the deltas before the first stop sequence, then `Finish`, and close the stream.

    Text that may be the beginning of a stop sequence is held back until more text decides.
    """
    held = ""
    async with aclosing(deltas):
        async for delta in deltas:
            if isinstance(delta, TextDelta):
                held += delta.text
                end = min((at for stop in stops if (at := held.find(stop)) >= 0), default=None)
                ready = end if end is not None else len(held) - _partial_match_length(held, stops)
                if ready:
                    yield TextDelta(held[:ready])
                if end is not None:
                    yield Finish("stop", "stop_sequence")
                    return
                held = held[ready:]
                continue
            if held and not isinstance(delta, UsageDelta):
                yield TextDelta(held)
                held = ""
            yield delta


def _partial_match_length(text: str, stops: Sequence[str]) -> int:
    """Count the characters at the end of the text that could begin a stop sequence."""
    longest = max(len(stop) for stop in stops) - 1
    return next((n for n in range(min(longest, len(text)), 0, -1) if any(s.startswith(text[-n:]) for s in stops)), 0)
