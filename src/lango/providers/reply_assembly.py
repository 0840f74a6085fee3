"""Assemble streamed deltas into one reply, and reject malformed tool calls."""

from typing import Any, assert_never, cast

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from lango.errors import ProviderProtocolError
from lango.json_values import is_nested_deeper_than, read_json
from lango.messages import Signature, Thought, ToolCall
from lango.providers.protocol import CallDelta, Delta, Finish, TextDelta, ThoughtDelta, UsageDelta

_MAX_VALUES, _MAX_CHARACTERS = 10_000, 2_000_000  # of the arguments of one call
_MAX_ARGUMENT_DEPTH = 100  # less than half of the store's limit, which covers the whole event


class MalformedCall(Struct, frozen=True):
    """A call that must not run: without a name, or with arguments that are not a JSON object."""

    id: str
    name: str
    arguments: str
    problem: str


class Reply(Struct, frozen=True):
    """A complete answer of a model. `calls` may run, `malformed` may not, each in order."""

    finish: Finish
    text: str = ""
    thoughts: tuple[Thought, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    malformed: tuple[MalformedCall, ...] = ()
    usage: UsageDelta = field(default_factory=UsageDelta)


class _PartialCall(Struct):
    id: str = ""
    name: str = ""
    arguments: list[str] = []
    signature: Signature | None = None

    def add(self, delta: CallDelta) -> None:
        self.id = self.id or delta.id
        if delta.name != self.name:  # some servers repeat the whole name with every piece
            self.name += delta.name
        self.arguments.append(delta.arguments)
        self.signature = self.signature or delta.signature

    def finished(self) -> ToolCall | MalformedCall:
        text = "".join(self.arguments).strip()
        if not self.name:
            return MalformedCall(self.id, "", text, "the call has no name")
        if len(text) > _MAX_CHARACTERS:
            problem = f"the arguments have more than {_MAX_CHARACTERS} characters"
            return MalformedCall(self.id, self.name, text[:_MAX_CHARACTERS], problem)
        try:
            # models often call a tool without parameters with an empty text
            value: Any = read_json(text or "{}", _MAX_VALUES)
        except (ValueError, RecursionError) as error:
            return MalformedCall(self.id, self.name, text, f"the arguments are not valid JSON: {error}")
        if not isinstance(value, dict):
            return MalformedCall(self.id, self.name, text, "the arguments are not a JSON object")
        if is_nested_deeper_than(value, _MAX_ARGUMENT_DEPTH):
            return MalformedCall(
                self.id, self.name, text, f"the arguments are nested more than {_MAX_ARGUMENT_DEPTH} levels deep"
            )
        return ToolCall(self.id, self.name, cast("dict[str, Any]", value), signature=self.signature)


class ReplyAssembler:
    """Collects the deltas of one answer, in order."""

    def __init__(self, provider: str = "") -> None:
        self._provider = provider
        self._text: list[str] = []
        self._thoughts: list[Thought] = []
        self._open: list[str] = []  # the pieces of the thought that is being streamed
        self._calls: dict[int, _PartialCall] = {}
        self._usage = UsageDelta()
        self._finish: Finish | None = None

    def add(self, delta: Delta) -> None:
        """Add the next delta."""
        if self._finish is not None:
            raise ProviderProtocolError("the stream continued after its end", provider=self._provider)
        match delta:
            case TextDelta():
                if delta.text:
                    self._close_thought()
                    self._text.append(delta.text)
            case ThoughtDelta():
                self._add_thought(delta)
            case CallDelta():
                self._calls.setdefault(delta.index, _PartialCall()).add(delta)
            case UsageDelta():
                self._usage = merge_usage(self._usage, delta)
            case Finish():
                self._close_thought()
                self._finish = delta
            case _:  # pragma: no cover
                assert_never(delta)

    def reply(self) -> Reply:
        """Return the complete answer. Raises `ProviderProtocolError` for a stream without `Finish`."""
        if self._finish is None:
            raise ProviderProtocolError("the stream ended before the answer was finished", provider=self._provider)
        calls = [self._calls[index].finished() for index in sorted(self._calls)]
        return Reply(
            finish=self._finish,
            text="".join(self._text),
            thoughts=tuple(self._thoughts),
            calls=tuple(call for call in calls if isinstance(call, ToolCall)),
            malformed=tuple(call for call in calls if isinstance(call, MalformedCall)),
            usage=self._usage,
        )

    def to_json(self) -> dict[str, Any] | None:
        """Return the answer so far as a JSON object, also one that never ends, or None if nothing came."""
        if not (self._text or self._thoughts or self._open or self._calls or self._finish):
            return None
        calls = [self._calls[index].finished() for index in sorted(self._calls)]
        return {
            "text": "".join(self._text),
            "thoughts": "".join([*(thought.text for thought in self._thoughts), *self._open]),
            "calls": [
                {
                    "id": call.id,
                    "name": call.name,
                    "arguments": call.input if isinstance(call, ToolCall) else call.arguments,
                }
                for call in calls
            ],
            "finish": (self._finish.detail or self._finish.reason) if self._finish else "",
            "usage": {name: count for name, count in asdict(self._usage).items() if count is not None},
        }

    def _add_thought(self, delta: ThoughtDelta) -> None:
        if delta.text:
            self._open.append(delta.text)
        if delta.signature is not None:
            self._close_thought(delta.signature)

    def _close_thought(self, signature: Signature | None = None) -> None:
        if self._open or signature is not None:
            self._thoughts.append(Thought("".join(self._open), signature))
            self._open = []


def merge_usage(earlier: UsageDelta, later: UsageDelta) -> UsageDelta:
    """Return the earlier usage with the fields that the later one sets."""
    changes = {name: value for name in UsageDelta.__struct_fields__ if (value := getattr(later, name)) is not None}
    return replace(earlier, **changes)
