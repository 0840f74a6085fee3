"""Define a tool: name, description, JSON schema and handler.

```python
@tool(level="write", effect="idempotent")
def save_note(title: str, text: Annotated[str, Field(max_length=2000)], context: ToolContext) -> str:
    \"\"\"Save a note.

    Args:
        title: The title, by which the note can be found.
    \"\"\"
```

`Tool(name, description, parameters, handler)` does the same with a handwritten JSON schema.

A handler is sync (it runs in a thread) or async. It is called with keyword arguments. A handler with a single parameter
that is not a property of the schema (`def handler(arguments)`) gets all arguments as one dict. A parameter annotated
with `ToolContext` gets the context and is not part of the schema.
"""

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, get_args, overload

from pydantic import ValidationError

from lango.errors import ConfigError, InvalidArguments
from lango.messages import RESERVED_PREFIX
from lango.tools.function_schema import TypedArguments, read_signature, resolved_hints, split_docstring
from lango.tools.schema_checker import SchemaChecker, describe_problem

Level = Literal["safe", "write", "dangerous"]
"""The risk, for approvals. safe: only reads its input. write: changes the workspace. dangerous: reaches further."""
Effect = Literal["none", "idempotent", "once"]
"""Whether a second run is harmless. none: no effects. idempotent: the same effects. once: never repeated by itself."""
Handler = Callable[..., Any]

_MAX_NAME_CHARACTERS = 64
_MAX_PROBLEMS = 5

_EMPTY: Mapping[str, Any] = MappingProxyType({})


Report = Callable[[float, float | None, str], None]
"""Takes the progress of a call: how much is done, of how much, and what it is doing."""


def _ignore_report(done: float, total: float | None, message: str) -> None:
    """Ignore the progress of a call that no turn runs."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The call that a handler serves. `state` is a read-only copy."""

    session_id: str = ""
    user_id: str = ""
    call_id: str = ""
    state: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    report: Report = field(default=_ignore_report, repr=False, compare=False)
    """Takes the progress of the call; `progress` is how a handler reports it."""

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Report how far the call is, from any thread; readers of the turn get it at most once a second, and the end.

        `total` is what `done` is at the end, if that is known.
        """
        self.report(done, total, message)


@dataclass(frozen=True)
class Tool:
    """A tool; its schema is checked when it is created.

    `level` decides whether it needs approval; the default is `safe`, since registering a handler means to let the model
    use it. `effect` decides what happens after a crash; the default is `once`: never run again by itself.
    """

    name: str
    description: str
    parameters: Mapping[str, Any] | None = field(hash=False)
    handler: Handler
    _: KW_ONLY
    level: Level = "safe"
    effect: Effect = "once"
    timeout_s: float | None = None
    long_running: bool = False
    """The handler may return `lango.adk.sleep` or `lango.adk.wait_for_event`: the result comes when the wait ends."""
    typed: TypedArguments | None = field(default=None, repr=False, compare=False)
    """Converts the arguments to Python values; set by `@tool`."""
    diff: Callable[[Mapping[str, Any]], str] | None = field(default=None, repr=False, compare=False)
    """Returns what a call would change as a unified diff, which an approval request shows; called in a thread."""

    def __post_init__(self) -> None:
        """Raise `ConfigError` for mistakes that would otherwise appear during a turn."""
        if not self.name or not self.name.replace("_", "a").replace("-", "a").isalnum() or not self.name.isascii():
            raise ConfigError(f"{self.name!r} is not a valid tool name: use letters, digits, _ and -")
        if len(self.name) > _MAX_NAME_CHARACTERS:
            raise ConfigError(f"tool {self.name}: models reject names of more than {_MAX_NAME_CHARACTERS} characters")
        if self.name.startswith(RESERVED_PREFIX):
            raise ConfigError(f"tool {self.name}: names that begin with {RESERVED_PREFIX} are reserved by ADK")
        if not callable(self.handler):
            raise ConfigError(f"tool {self.name}: its handler is not a function, but {type(self.handler).__name__}")
        if self.level not in get_args(Level) or self.effect not in get_args(Effect):
            raise ConfigError(f"tool {self.name}: level is one of {get_args(Level)}, effect one of {get_args(Effect)}")
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise ConfigError(f"tool {self.name}: timeout_s must be more than 0")
        object.__setattr__(self, "parameters", _object_schema(self.name, self.parameters))
        if self.typed is None:
            self._checker  # noqa: B018 - raises for a wrong schema
        self._call_style  # noqa: B018

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments, always of an object."""
        return dict(self.parameters or {})

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments for the handler. Raises `InvalidArguments` that names each wrong one and why."""
        try:
            if self.typed is not None:
                return self.typed.validate(arguments)
            problems = self._checker.check(dict(arguments))
        except ValidationError as error:
            problems = [_typed_problem(problem) for problem in error.errors()]
        except InvalidArguments as error:
            raise InvalidArguments(_invalid_arguments_message([str(error)])) from error
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # values that are not JSON, a validator of the tool's author
            raise InvalidArguments(
                _invalid_arguments_message([f"they cannot be checked: {type(error).__name__}: {error}"])
            ) from error
        if problems:
            raise InvalidArguments(_invalid_arguments_message(problems))
        return dict(arguments)

    def fits(self, arguments: Mapping[str, Any]) -> bool:
        """Whether the arguments match the schema."""
        try:
            self.validate(arguments)
        except InvalidArguments:
            return False
        return True

    def call(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """Call the handler with validated arguments; an async one returns its coroutine."""
        calling = self._call_style
        filled = {calling.context: context} if calling.context else {}
        if calling.takes_dict:
            return self.handler(dict(arguments), **filled)
        return self.handler(**arguments, **filled)

    @property
    def is_async(self) -> bool:
        """Whether the handler runs on the event loop."""
        return inspect.iscoroutinefunction(self.handler) or inspect.iscoroutinefunction(
            getattr(self.handler, "__call__", None)  # noqa: B004 - an object with an async __call__
        )

    @cached_property
    def _checker(self) -> SchemaChecker:
        try:
            return SchemaChecker(self.schema)
        except ConfigError as error:
            raise ConfigError(f"tool {self.name}: its parameters cannot be used as a JSON schema: {error}") from error

    @cached_property
    def _call_style(self) -> "_CallStyle":
        return _read_call_style(self)


@dataclass(frozen=True, slots=True)
class _CallStyle:
    """How a handler is called."""

    context: str = ""
    """The name of the parameter that takes the `ToolContext`."""
    takes_dict: bool = False


def _object_schema(name: str, schema: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if not schema:
        return {"type": "object", "properties": {}}
    if schema.get("type", "object") != "object":
        raise ConfigError(f"tool {name}: its parameters must be a JSON schema of an object")
    return {"type": "object", "properties": {}, **schema}


def _read_call_style(tool: Tool) -> _CallStyle:
    """Determine how the handler takes its arguments. Raises `ConfigError` for a parameter that the schema lacks."""
    signature = read_signature(tool.handler)
    if signature is None:  # a builtin without one
        return _CallStyle()
    hints = resolved_hints(tool.handler)
    context = next((name for name in signature.parameters if is_context(hints.get(name))), "")
    rest = [parameter for parameter in signature.parameters.values() if parameter.name != context]
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in rest):
        return _CallStyle(context)
    known = tool.schema["properties"]
    named = [parameter for parameter in rest if parameter.kind is not parameter.VAR_POSITIONAL]
    if len(named) == 1 and tool.typed is None and _takes_dict(named[0], known):
        return _CallStyle(context, takes_dict=True)
    unknown = [
        parameter.name for parameter in named if parameter.name not in known and parameter.default is parameter.empty
    ]
    if unknown:
        raise ConfigError(
            f"tool {tool.name}: its handler requires {', '.join(unknown)}, which the schema does not have"
        )
    return _CallStyle(context)


def _takes_dict(parameter: inspect.Parameter, known: Collection[str]) -> bool:
    if parameter.kind is parameter.POSITIONAL_ONLY:
        return True
    return parameter.kind is parameter.POSITIONAL_OR_KEYWORD and parameter.name not in known


def is_context(annotation: Any) -> bool:
    """Whether a parameter with this annotation takes the `ToolContext`."""
    if isinstance(annotation, str):  # imported for type checkers only
        return "ToolContext" in re.findall(r"\w+", annotation)
    return annotation is ToolContext or ToolContext in get_args(annotation)


@overload
def tool(function: Handler, /) -> Tool: ...


@overload
def tool(
    *,
    name: str = "",
    description: str = "",
    level: Level = "safe",
    effect: Effect = "once",
    timeout_s: float | None = None,
    long_running: bool = False,
) -> Callable[[Handler], Tool]: ...


def tool(
    function: Handler | None = None,
    /,
    *,
    name: str = "",
    description: str = "",
    level: Level = "safe",
    effect: Effect = "once",
    timeout_s: float | None = None,
    long_running: bool = False,
) -> Tool | Callable[[Handler], Tool]:
    """Make a `Tool` of a typed function: its docstring is the description, its annotations are the schema.

    Arguments have the annotated types, such as nested pydantic models and enums. Descriptions of parameters come from
    `Annotated[int, Field(description=...)]` or from the `Args:` section of the docstring.
    """

    def make_tool(function: Handler) -> Tool:
        own_name = name or getattr(function, "__name__", "")
        summary, parameters = split_docstring(inspect.getdoc(function) or "")
        typed = TypedArguments.of(function, own_name, parameters, skip=is_context)
        return Tool(
            own_name,
            description or summary,
            typed.json_schema(),
            function,
            level=level,
            effect=effect,
            timeout_s=timeout_s,
            long_running=long_running,
            typed=typed,
        )

    return make_tool if function is None else make_tool(function)


def _invalid_arguments_message(problems: list[str]) -> str:
    shown = "; ".join(problems[:_MAX_PROBLEMS])
    more = f"; and {len(problems) - _MAX_PROBLEMS} more" if len(problems) > _MAX_PROBLEMS else ""
    return f"invalid arguments, the tool was not run: {shown}{more}"


def _typed_problem(problem: Any) -> str:
    message = "unknown argument" if problem["type"] == "extra_forbidden" else str(problem["msg"])
    return describe_problem(problem["loc"], message)
