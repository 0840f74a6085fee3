"""Deltas in, one reply out: the same, however the stream was cut into chunks."""

from typing import Any, assert_never, cast

from msgspec import Struct, field
from msgspec.structs import replace

from lango.errors import ProviderProtocolError
from lango.json_input import is_nested_deeper_than, read_json
from lango.messages import Signature, Thought, ToolCall
from lango.providers.protocol import CallDelta, Delta, Finish, TextDelta, ThoughtDelta, UsageDelta

_MAX_VALUES, _MAX_CHARACTERS = 10_000, 2_000_000  # of the arguments of one call
_MAX_ARGUMENT_DEPTH = 100  # a store keeps more than twice as much, and a call is not all that an event holds


class MalformedCall(Struct, frozen=True):
    """A call that must not run: it has no name, or its arguments are not a JSON object."""

    id: str
    name: str
    arguments: str
    problem: str


class Reply(Struct, frozen=True):
    """A whole answer of a model. `calls` holds what may run, `malformed` what may not, each in order."""

    finish: Finish
    text: str = ""
    thoughts: tuple[Thought, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    malformed: tuple[MalformedCall, ...] = ()
    usage: UsageDelta = field(default_factory=UsageDelta)


class _PartialCall(Struct):
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])
    signature: Signature | None = None

    def add(self, delta: CallDelta) -> None:
        self.id = self.id or delta.id
        if delta.name != self.name:  # some servers say the whole name again with every piece
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
            # A tool without parameters is often called with nothing at all.
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
    """Takes the deltas of one answer, in order."""

    def __init__(self, provider: str = "") -> None:
        self._provider = provider
        self._text: list[str] = []
        self._thoughts: list[Thought] = []
        self._open: list[str] = []  # the pieces of the thought that is being streamed
        self._calls: dict[int, _PartialCall] = {}
        self._usage = UsageDelta()
        self._finish: Finish | None = None

    def add(self, delta: Delta) -> None:
        """Take the next delta."""
        if self._finish is not None:
            raise ProviderProtocolError("the stream went on after its end", provider=self._provider)
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
        """Return the whole answer; a stream that had no `Finish` is broken."""
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
    """Return what is known with the fields that the later report sets."""
    changes = {name: value for name in UsageDelta.__struct_fields__ if (value := getattr(later, name)) is not None}
    return replace(earlier, **changes)
