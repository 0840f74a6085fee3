"""T1: a typed function or a JSON schema becomes a tool; its arguments are checked before the handler runs."""

import functools
from collections.abc import Mapping
from dataclasses import FrozenInstanceError
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from lango.errors import ConfigError
from lango.tools import InvalidArguments, Tool, ToolContext, run_tool, tool


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Size(BaseModel):
    width: int
    height: int = 2


class Tree(BaseModel):
    name: str
    children: list["Tree"] = []


CITY = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}


@tool
def paint(
    size: Size,
    color: Color,
    mode: Literal["fast", "slow"] = "fast",
    layers: Annotated[int, Field(ge=1, description="How many layers.")] = 1,
    tags: list[str] | None = None,
) -> str:
    """Paint a wall.

    It takes a while.

    Args:
        size: How large the wall is,
            in metres.
        color (Color): Which paint.
        layers: never shown, since the annotation says it better.

    Returns:
        What was done.
    """
    return f"{size!r} {color!r} {mode} {layers} {tags}"


def test_t1_docstring_and_annotations_become_description_and_schema() -> None:
    assert paint.name == "paint"
    assert paint.description == "Paint a wall.\n\nIt takes a while.\n\n\nReturns:\n    What was done.".replace(
        "\n\n\n", "\n\n"
    )
    assert paint.schema == {
        "type": "object",
        "properties": {
            "size": {
                "description": "How large the wall is, in metres.",
                "properties": {"width": {"type": "integer"}, "height": {"default": 2, "type": "integer"}},
                "required": ["width"],
                "title": "Size",
                "type": "object",
            },
            "color": {"description": "Which paint.", "enum": ["red", "blue"], "title": "Color", "type": "string"},
            "mode": {"default": "fast", "enum": ["fast", "slow"], "type": "string"},
            "layers": {"default": 1, "description": "How many layers.", "minimum": 1, "type": "integer"},
            "tags": {"anyOf": [{"items": {"type": "string"}, "type": "array"}, {"type": "null"}], "default": None},
        },
        "required": ["size", "color"],
        "additionalProperties": False,
    }


async def test_t1_arguments_arrive_as_the_annotated_types() -> None:
    outcome = await run_tool(paint, {"size": {"width": "3"}, "color": "blue", "tags": ["a"]})
    assert outcome.ok
    assert outcome.result == {"result": f"{Size(width=3)!r} {Color.BLUE!r} fast 1 ['a']"}


@pytest.mark.parametrize(
    ("arguments", "where", "why"),
    [
        ({"color": "red"}, "size", "required"),
        ({"size": {"width": "wide"}, "color": "red"}, "size.width", "integer"),
        ({"size": {"width": 1}, "color": "green"}, "color", "'red' or 'blue'"),
        ({"size": {"width": 1}, "color": "red", "layers": 0}, "layers", "greater than or equal to 1"),
        ({"size": {"width": 1}, "color": "red", "tags": ["a", 1]}, "tags[1]", "string"),
        ({"size": {"width": 1}, "color": "red", "colour": "red"}, "colour", "unknown argument"),
    ],
)
async def test_t1_a_wrong_argument_is_named_and_the_handler_not_run(
    arguments: dict[str, Any], where: str, why: str
) -> None:
    outcome = await run_tool(paint, arguments)
    assert not outcome.ok
    assert f"{where}: " in outcome.result["error"]
    assert why in outcome.result["error"]
    assert "not run" in outcome.result["error"]


def test_a_model_that_contains_itself_keeps_a_reference_that_resolves() -> None:
    @tool
    def plant(tree: Tree) -> str:
        """Plant."""
        return tree.children[0].name

    checker: Any = Draft202012Validator(plant.schema)
    assert checker.is_valid({"tree": {"name": "a", "children": [{"name": "b"}]}})
    assert not checker.is_valid({"tree": {"name": "a", "children": [{"name": 1}]}})
    assert plant.validate({"tree": {"name": "a", "children": [{"name": "b"}]}})["tree"].children[0].name == "b"


async def test_any_argument_name_is_possible() -> None:
    @tool(name="odd-names", description="Given.", level="dangerous", effect="none", timeout_s=3)
    def odd(
        json: int, model_config: str, copy: bool = Field(default=True, description="c"), schema: Any = print
    ) -> str:
        return f"{json} {model_config} {copy}"

    assert (odd.name, odd.description, odd.level, odd.effect, odd.timeout_s) == (
        "odd-names",
        "Given.",
        "dangerous",
        "none",
        3,
    )
    assert odd.schema["required"] == ["json", "model_config"]
    assert odd.schema["properties"]["copy"] == {"default": True, "description": "c", "type": "boolean"}
    outcome = await run_tool(odd, {"json": 1, "model_config": "x"})
    assert outcome.result == {"result": "1 x True"}


async def test_the_context_is_passed_and_is_no_argument() -> None:
    @tool
    def whoami(greeting: str, context: ToolContext) -> str:
        """Return the caller."""
        return f"{greeting} {context.user_id} {context.state['x']}"

    def by_schema(city: str, here: "ToolContext | None" = None) -> str:
        assert here is not None
        return f"{city} {here.call_id}"

    context = ToolContext("s", "alice", "c1", {"x": 1})
    assert list(whoami.schema["properties"]) == ["greeting"]
    assert (await run_tool(whoami, {"greeting": "hi"}, context)).result == {"result": "hi alice 1"}
    assert not (await run_tool(whoami, {"greeting": "hi", "context": {"user_id": "root"}}, context)).ok
    weather = Tool("weather", "", CITY, by_schema)
    assert (await run_tool(weather, {"city": "Bonn"}, context)).result == {"result": "Bonn c1"}


async def test_annotations_that_are_text_are_resolved_as_far_as_they_can_be() -> None:
    @tool  # pyright: ignore[reportUnknownArgumentType]
    def later(size: "Size", here: "elsewhere.ToolContext") -> str:  # noqa: F821 # pyright: ignore
        """Take text."""
        return f"{size.width} {here.call_id}"  # pyright: ignore

    assert list(later.schema["properties"]) == ["size"]
    assert (await run_tool(later, {"size": {"width": 4}}, ToolContext(call_id="c1"))).result == {"result": "4 c1"}


def test_an_unknown_annotation_is_reported() -> None:
    def mystery(thing: "Unheard") -> None:  # noqa: F821 # pyright: ignore
        """Take an unknown type."""

    with pytest.raises(ConfigError, match="tool mystery"):
        tool(mystery)  # pyright: ignore[reportUnknownArgumentType]


async def test_extra_arguments_are_passed_as_keywords() -> None:
    @tool
    def keep(**values: Any) -> dict[str, Any]:
        """Keep."""
        return values

    assert (await run_tool(keep, {"a": 1})).result == {"a": 1}


# By JSON schema.


async def by_keyword(city: str, days: int = 1) -> dict[str, Any]:
    return {"city": city, "days": days}


async def by_dict(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {"days": 1, **arguments}


def any_name(args: Any) -> dict[str, Any]:
    return {"days": 1, **args}


class Weather:
    async def __call__(self, city: str, days: int = 1) -> dict[str, Any]:
        return {"city": city, "days": days}


@pytest.mark.parametrize(
    "handler",
    [by_keyword, by_dict, any_name, Weather(), functools.partial(by_keyword, days=1)],
)
async def test_t1_a_handler_takes_keywords_or_one_dict(handler: Any) -> None:
    weather = Tool("weather", "Tell the weather.", CITY, handler)
    assert (await run_tool(weather, {"city": "Bonn"})).result == {"city": "Bonn", "days": 1}


async def test_t1_a_schema_is_enforced() -> None:
    weather = Tool("weather", "", CITY, by_keyword)
    for arguments, message in [({}, '"city" is a required'), ({"city": "B", "days": "2"}, 'days: "2" is not of type')]:
        outcome = await run_tool(weather, arguments)
        assert not outcome.ok
        assert message in outcome.result["error"]


async def test_a_tool_without_parameters_takes_none() -> None:
    nothing: list[dict[str, Any] | None] = [{}, None]
    for empty in nothing:
        ping = Tool("ping", "Ping.", empty, lambda: "pong")
        assert ping.schema == {"type": "object", "properties": {}}
        assert (await run_tool(ping, {})).result == {"result": "pong"}


@pytest.mark.parametrize("place", ["http://127.0.0.1:9/schema.json", "file:///etc/passwd", "other.json", "#anchor"])
def test_a_schema_never_makes_a_request(place: str) -> None:
    far = {"type": "object", "properties": {"a": {"$ref": place}}}
    with pytest.raises(ConfigError, match=r"tool far.*only references inside the schema"):
        Tool("far", "", far, any_name)


def positional(a: int, /, b: int) -> None:
    """Cannot be called by name."""


def unknowable(file: functools.partial[int]) -> None:
    """Has no JSON schema."""


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Tool("bad name", "", {}, print), "not a valid tool name"),
        (lambda: Tool("a" * 65, "", {}, print), "more than 64 characters"),
        (lambda: Tool("a", "", {}, 5), "not a function"),  # pyright: ignore
        (lambda: Tool("a", "", {"type": "array"}, print), "of an object"),
        (
            lambda: Tool("a", "", {"type": "object", "properties": {"x": {"type": "text"}}}, print),
            "cannot be used as a JSON schema: properties.x.type",
        ),
        (lambda: Tool("a", "", CITY, lambda city, country: 1), "requires country"),  # pyright: ignore
        (lambda: Tool("a", "", {}, print, level="harmless"), "level is one of"),  # pyright: ignore
        (lambda: Tool("a", "", {}, print, timeout_s=0), "timeout_s"),
        (lambda: tool(positional), "by name"),
        (lambda: tool(unknowable), "cannot be turned into a schema|no JSON schema"),
    ],
)
def test_an_unusable_tool_is_rejected_when_it_is_made(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_tools_are_values() -> None:
    one, same = Tool("a", "b", CITY, by_dict), Tool("a", "b", CITY, by_dict)
    assert one == same
    assert hash(one) == hash(same)
    assert (one.level, one.effect) == ("safe", "once")
    with pytest.raises(FrozenInstanceError):
        one.name = "c"  # pyright: ignore[reportAttributeAccessIssue]


def test_many_problems_are_summarized() -> None:
    with pytest.raises(InvalidArguments, match="and 5 more"):
        paint.validate({str(number): number for number in range(8)})
