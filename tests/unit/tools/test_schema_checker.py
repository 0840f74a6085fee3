"""Attack 16: an untrusted schema is measured before it is compiled, and a check before it runs."""

import asyncio
import json
from typing import Any

import pytest

from lango.errors import ClientToolRefused, ConfigError, InvalidArguments
from lango.tools import Tool, client_tool
from lango.tools.client_tool_definitions import MAX_CHARACTERS, read_client_tools
from lango.tools.schema_checker import (
    MAX_BRANCHES,
    MAX_REFERENCES,
    MAX_SCHEMA_CHARACTERS,
    MAX_SCHEMA_DEPTH,
    MAX_SCHEMA_VALUES,
    SchemaChecker,
    has_patterns,
)


def properties(**schemas: Any) -> dict[str, Any]:
    return {"type": "object", "properties": schemas}


def nested(levels: int) -> dict[str, Any]:
    return json.loads('{"properties":{"a":' * levels + "{}" + "}}" * levels)


def doubling(levels: int) -> dict[str, Any]:
    definitions = {f"d{at}": {"allOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 2} for at in range(levels)}
    return properties(a={"$ref": "#/$defs/d0"}) | {"$defs": definitions | {f"d{levels}": {"type": "string"}}}


TOO_MUCH: dict[str, tuple[dict[str, Any], str]] = {
    "characters": (properties(a={"description": "x" * (MAX_SCHEMA_CHARACTERS + 1)}), "characters"),
    "values": (properties(a={"enum": list(range(MAX_SCHEMA_VALUES))}), "values"),
    "levels": (nested(MAX_SCHEMA_DEPTH), "levels deep"),
    "branches": (properties(a={"anyOf": [{"const": at} for at in range(MAX_BRANCHES + 1)]}), "branches"),
    "references": (properties(**{f"a{at}": {"$ref": "#"} for at in range(MAX_REFERENCES + 1)}), "references"),
    "multiplied": (doubling(30), "references multiply"),
    "cycle": (
        properties(a={"$ref": "#/$defs/d"}) | {"$defs": {"d": {"not": {"$ref": "#/$defs/d"}}}},
        "circular reference",
    ),
    "nowhere": (properties(a={"$ref": "#/$defs/none"}), "does not resolve"),
    "large pattern": (properties(a={"pattern": "((a{1000}){1000}){1000}"}), "regex"),
}


@pytest.mark.parametrize("name", TOO_MUCH)
async def test_attack_16_a_schema_above_a_limit_is_rejected_with_the_limit(name: str) -> None:
    schema, limit = TOO_MUCH[name]
    with pytest.raises(ConfigError, match=f"tool odd: .*{limit}"):
        Tool("odd", "", schema, print)
    with pytest.raises(ClientToolRefused, match=f"tool odd: .*{limit}"):
        client_tool("odd", "", schema)
    with pytest.raises(ClientToolRefused, match=f"tool odd: .*{limit}"):
        await read_client_tools([("fine", "", properties()), ("odd", "", schema)])


async def test_attack_16_the_tools_of_one_client_share_a_size_limit() -> None:
    schema = properties(a={"description": "x" * 40_000})
    few = MAX_CHARACTERS // 40_000 - 1
    assert len(await read_client_tools([(f"t{at}", "", schema) for at in range(few)])) == few
    with pytest.raises(ClientToolRefused, match="the schemas of a client's tools have more than"):
        await read_client_tools([(f"t{at}", "", schema) for at in range(few + 2)])


def problem(schema: dict[str, Any], arguments: dict[str, Any]) -> str:
    try:
        return "; ".join(SchemaChecker(schema).check(arguments))
    except InvalidArguments as error:
        return str(error)


LIST = {"anyOf": [{"type": "array", "items": {"$ref": "#/properties/a"}}] * 2}
TREE = properties(a={"type": "object", "properties": {"next": {"$ref": "#/properties/a"}, "n": {"type": "integer"}}})


def lists(levels: int) -> Any:
    return json.loads("[" * levels + "]" * levels)


def chain(levels: int, last: Any) -> Any:
    return json.loads('{"next":' * levels + json.dumps(last) + "}" * levels)


def test_attack_16_a_check_with_too_many_steps_is_rejected() -> None:
    assert not problem(properties(a=LIST), {"a": lists(8)})
    # each level doubles the work: 2 ** 50 steps would never end
    assert "too large to be checked" in problem(properties(a=LIST), {"a": lists(50)})
    assert "levels deep" in problem(properties(a={}), {"a": lists(500)})
    assert "too large" in problem(properties(a={"enum": list(range(4000))}), {"a": ["x"] * 1000})


def test_a_schema_that_contains_itself_is_checked_as_deep_as_the_arguments_go() -> None:
    assert not problem(TREE, {"a": chain(40, {"n": 1})})
    assert "a.next.next.n" in problem(TREE, {"a": chain(2, {"n": "x"})})


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^((?=a)a+)+$", r"^(a+)+\1$", "^(a|aa)+$", "(.*)*x"])
def test_attack_16_patterns_match_in_linear_time(pattern: str) -> None:
    # the letters double the time of a backtracking engine: 5,000 of them would never end
    assert problem(properties(a={"type": "string", "pattern": pattern}), {"a": "a" * 5_000 + "!"})


def test_problems_have_their_path_and_no_long_values() -> None:
    schema = properties(n={"type": "integer"}, list={"items": {"type": "string"}}) | {"required": ["x"]}
    problems = SchemaChecker(schema).check({"n": "one", "list": ["a", 2]})
    assert problems == [
        '"x" is a required property',
        'list[1]: 2 is not of type "string"',
        'n: "one" is not of type "integer"',
    ]
    long = "y" * 100_000
    assert SchemaChecker(schema).check({"x": 1, "n": long}) == ['n: the value is not of type "integer"']


def test_an_unknown_dialect_and_an_old_draft_are_read() -> None:
    own = properties(a={"type": "string"}) | {"$schema": "https://example.com/dialect"}
    assert problem(own, {"a": 1})
    old = {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"t": {"type": "string"}}}
    assert problem(old | properties(a={"$ref": "#/definitions/t"}), {"a": 1})


def test_a_property_named_pattern_is_not_a_pattern() -> None:
    assert not has_patterns(properties(pattern={"type": "string"}))
    assert has_patterns(properties(a={"items": {"pattern": "x"}}))
    assert has_patterns(properties(a={"patternProperties": {"x": {}}}))


async def test_attack_16_the_event_loop_is_free_while_client_tools_are_made() -> None:
    schema = properties(**{f"p{at}": {"type": "string", "minLength": at} for at in range(300)})
    making = asyncio.ensure_future(read_client_tools([(f"t{at}", "", schema) for at in range(20)]))
    ticks = 0
    while not making.done():
        await asyncio.sleep(0)
        ticks += 1
    assert len(await making) == 20
    assert ticks > 1
