"""Count the tokens of texts and messages.

The tokenizer is o200k, bundled and offline. Other vendors' counts differ by some percent; `TokenCounter` learns the
factor of each model from the usage that its provider reports.
"""

import asyncio
import contextlib
import threading
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Struct

from lango.messages import Media, Message, ToolCall, byte_size

if TYPE_CHECKING:
    from splintr import AnyTokenizer

MESSAGE_TOKENS = 4
"""Tokens of a message in addition to its content: its role and its delimiters."""
CALL_TOKENS = 8
"""Tokens of a call or result in addition to its name and its JSON: its id and its delimiters."""
IMAGE_TOKENS = 1_100
"""Tokens of a picture. Vendors scale pictures of any size to 258-1,600 tokens."""
MEDIA_TOKENS = 500
"""The least tokens of audio, video or a file, and the estimate if only its address is known."""
BYTES_PER_MEDIA_TOKEN = 500
"""Audio has 32 tokens a second at 16 kB a second; video at 1 Mbit/s and 263 tokens a second is close to it."""
BYTES_PER_FILE_TOKEN = 40
"""PDF and other files have some 2,000 tokens for a page of 80 kB."""

MAX_COUNTED_CHARACTERS = 100_000
"""A longer text is estimated from pieces with this many characters in total: 60 ms in the slowest script."""
_PIECES = 8
_LONGEST_NAME = 64  # in characters; no provider accepts a longer name of a tool

_lock = threading.Lock()
_loaded: "AnyTokenizer | None" = None


def warm_up() -> None:
    """Load the tokenizer now, so that no message waits for it: 42 MB and 0.2 s, once in a process."""
    _tokenizer()


async def load_tokenizer() -> None:
    """Load the tokenizer in a thread, unless it is loaded. Call it before an event loop counts tokens."""
    if _loaded is None:
        await asyncio.to_thread(warm_up)


def _tokenizer() -> "AnyTokenizer":
    """Load the tokenizer once, in the first thread that needs it."""
    global _loaded
    with _lock:
        if _loaded is None:
            from splintr import Tokenizer  # takes 40 ms, which `--help` does not need

            tokenizer = Tokenizer.from_pretrained("o200k_base")
            # the first text that needs merging builds the merge table (90 ms): do it now, not for a message.
            # Only this method lets other threads run during that time.
            tokenizer.encode_batch(["Warm-up: zqxjkvbw."])
            _loaded = tokenizer
        return _loaded


def count_tokens(what: str | Message | Iterable[Message]) -> int:
    """Count the tokens of a text, a message or several messages.

    A message has the tokens of its text, thoughts and names, of arguments and outputs as compact JSON, and a fixed
    overhead. The text of a tool message repeats its outputs, and only counts if there are none. Pictures and files are
    estimates.
    """
    if isinstance(what, str):
        return _text_tokens(what)
    if isinstance(what, Message):
        return _message_tokens(what)
    return sum(_message_tokens(message) for message in what)


def _text_tokens(text: str) -> int:
    """Count the tokens of a text; a text that is too long for any window is estimated from some of its pieces."""
    if len(text) <= MAX_COUNTED_CHARACTERS:
        return _counted_tokens(text) if text else 0
    size = MAX_COUNTED_CHARACTERS // _PIECES
    last = len(text) - size
    counted = sum(_counted_tokens(text[start : start + size]) for start in range(0, last + 1, last // (_PIECES - 1)))
    return counted * len(text) // MAX_COUNTED_CHARACTERS


def _counted_tokens(text: str) -> int:
    tokenizer = _loaded or _tokenizer()
    try:
        if "<|" in text:
            # a special token in a message is ordinary text to every provider
            return len(tokenizer.encode_ordinary(text))
        return len(tokenizer.encode_flat(text)) // 4  # bytes, 4 per id: a third faster than a list of ints
    except UnicodeEncodeError:
        return _counted_tokens(replace_surrogates(text))


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which cannot be encoded, by U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _message_tokens(message: Message) -> int:
    total = MESSAGE_TOKENS
    if message.content and not (message.role == "tool" and message.tool_calls):
        total += _text_tokens(message.content)
    for thought in message.thoughts:
        total += _text_tokens(thought.text)
    for call in message.tool_calls:
        total += _call_tokens(call)
    for media in message.media:
        total += _media_tokens(media)
    return total


def _call_tokens(call: ToolCall) -> int:
    total = CALL_TOKENS + (_name_tokens(call.name) if len(call.name) <= _LONGEST_NAME else _text_tokens(call.name))
    if call.input:
        total += _text_tokens(compact_json(call.input))
    if call.output:
        total += _text_tokens(compact_json(call.output))
    return total


@lru_cache(1_000)
def _name_tokens(name: str) -> int:
    """Count the tokens of a tool's name, which many calls have."""
    return _text_tokens(name)


def _media_tokens(media: Media) -> int:
    if text := media.text:
        return _text_tokens(text)
    kind = media.mime_type.partition("/")[0]
    if kind == "image":
        return IMAGE_TOKENS
    if media.data is None:
        return MEDIA_TOKENS
    per_token = BYTES_PER_MEDIA_TOKEN if kind in ("audio", "video") else BYTES_PER_FILE_TOKEN
    return max(MEDIA_TOKENS, byte_size(media.data) // per_token)


def _json_fallback(value: Any) -> Any:
    """Convert a value that is not JSON, because counting must never raise."""
    return dict(cast("Mapping[Any, Any]", value)) if isinstance(value, Mapping) else str(value)


_ENCODER = msgspec.json.Encoder(enc_hook=_json_fallback)


def compact_json(value: Any) -> str:
    """Return a value as the JSON whose tokens are counted, without spaces and escapes."""
    try:
        return _ENCODER.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):  # keys that are not text, lone surrogates, a cycle
        with contextlib.suppress(ValueError, RecursionError):  # a number too long to print, a value nested too deep
            return repr(value)
    return ""


MIN_FACTOR, MAX_FACTOR = 0.5, 2.0
_LEAST_SAMPLE_TOKENS = 100  # below this, the vendor's fixed overhead dominates
_LEARNING_RATE = 0.2


class Calibration(Struct, frozen=True):
    """How many tokens of a model one counted token is, learned from the reported usage."""

    factor: float = 1.0
    samples: int = 0

    def learn(self, counted_tokens: int, reported_tokens: int) -> "Calibration":
        """Return the calibration after a further report; a report of few tokens changes nothing."""
        if counted_tokens < _LEAST_SAMPLE_TOKENS or reported_tokens <= 0:
            return self
        ratio = min(MAX_FACTOR, max(MIN_FACTOR, reported_tokens / counted_tokens))
        # the first reports have equal weight, later ones a fifth each: an unusual request changes little
        rate = max(_LEARNING_RATE, 1 / (self.samples + 1))
        return Calibration(self.factor + rate * (ratio - self.factor), self.samples + 1)


class TokenCounter:
    """Learns how each model counts tokens: our count times a factor from the provider's reports."""

    def __init__(self) -> None:
        self._calibrations: dict[str, Calibration] = {}

    def factor(self, model: str) -> float:
        """Return how many tokens of a model one counted token is, from 0.5 to 2.0; 1.0 for an unknown model."""
        return self._calibrations.get(model, Calibration()).factor

    def budget(self, budget_tokens: int, model: str) -> int:
        """Convert a budget in the model's tokens to counted tokens, as `fit_to_budget` takes it."""
        return int(budget_tokens / self.factor(model))

    def learn(self, model: str, counted_tokens: int, reported_tokens: int) -> None:
        """Learn from the tokens that a provider reports for a request that we counted."""
        self._calibrations[model] = self._calibrations.get(model, Calibration()).learn(counted_tokens, reported_tokens)
