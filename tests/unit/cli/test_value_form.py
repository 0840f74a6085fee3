"""A form in the terminal asks for the value of any pydantic model, field by field."""

from collections.abc import Sequence
from datetime import date, datetime
from enum import Enum
from typing import Any, Literal

import pytest
from msgspec import UNSET
from pydantic import BaseModel, Field

from lango.cli.chat.value_form import FormLeft, ValueForm, has_fields, schema_of


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class Address(BaseModel):
    street: str
    city: str = "Bern"


class Item(BaseModel):
    name: str
    count: int = Field(1, ge=1, le=9)


class Order(BaseModel):
    customer: str = Field(min_length=2, description="Who pays")
    size: Size = Size.SMALL
    urgent: bool = False
    due: date
    at: datetime | None = None
    discount: float | None = Field(None, ge=0, lt=1)
    note: str | None = "none"
    tags: list[str] = []
    items: list[Item]
    address: Address
    billing: Address | None = None
    extras: dict[str, int] = {}
    pay: Literal["card", "cash"] = "card"
    sizes: set[Size] = set()
    shelf: int | str = 3


SCHEMA = Order.model_json_schema()


class Person:
    """Answers questions, each with what is planned for it."""

    def __init__(self, answers: Sequence[tuple[str, str | None]]) -> None:
        """Each answer comes with the beginning of its question."""
        self.answers = [*answers]
        self.shown: list[str] = []

    async def ask(self, question: str) -> str | None:
        begin, line = self.answers.pop(0)
        assert question.startswith(begin), question
        self.shown.append(question)
        return line

    async def fill(self, schema: dict[str, Any], before: Any = UNSET) -> Any:
        value = await ValueForm(schema, self.ask, self.shown.append).fill(before)
        assert not self.answers
        return value


async def test_every_kind_of_field_is_asked_for_and_checked_at_once() -> None:
    person = Person(
        [
            ("Customer, Who pays (at least 2 characters):", "A"),
            ("Customer", "Ada"),
            ('Size (one of small, large; Enter: "small"):', "huge"),
            ("Size", "large"),
            ("Urgent (yes or no; Enter: false):", "yes"),
            ("Due (a date such as 2030-12-31):", "tomorrow"),
            ("Due", ""),
            ("Due", "2027-01-31"),
            ("At (a time such as", "2027-01-31T08:00"),
            ("Discount (a number at least 0, less than 1; Enter: null):", "1"),
            ("Discount", "0.5"),
            ('Note (Enter: "none"; null: none):', "null"),
            ("Tags: fill it in? (y; Enter: []; n: none):", "y"),
            ("Tags, item 1 (optional):", "red"),
            ("Tags, item 2 (optional):", ""),
            ("Items, item 1: add it? (y; Enter: no more):", "y"),
            ("Name:", "shirt"),
            ("Count (a whole number at least 1, at most 9; Enter: 1):", "10"),
            ("Count", "2"),
            ("Items, item 2: add it?", ""),
            ("Street:", "Main Street 1"),
            ('City (Enter: "Bern"):', ""),
            ("billing: fill it in? (y; Enter: null; n: none):", "y"),
            ("Street:", "Bank Street 2"),
            ("City", "Zurich"),
            ("Extras (JSON that fits", '{"box": 1}'),
            ("Pay (one of card, cash", "cash"),
            ("Sizes (several of small, large, with commas between; Enter: []):", "small, large"),
            ("Shelf, which kind? (1: a whole number, 2: string; Enter: 3):", "9"),
            ("Shelf, which kind?", "2"),
            ("Shelf:", "upper"),
        ]
    )
    order = Order.model_validate(await person.fill(SCHEMA))
    assert order.model_dump(mode="json") == {
        "customer": "Ada",
        "size": "large",
        "urgent": True,
        "due": "2027-01-31",
        "at": "2027-01-31T08:00:00",
        "discount": 0.5,
        "note": None,
        "tags": ["red"],
        "items": [{"name": "shirt", "count": 2}],
        "address": {"street": "Main Street 1", "city": "Bern"},
        "billing": {"street": "Bank Street 2", "city": "Zurich"},
        "extras": {"box": 1},
        "pay": "cash",
        "sizes": order.model_dump(mode="json")["sizes"],
        "shelf": "upper",
    }
    assert order.sizes == {Size.SMALL, Size.LARGE}
    assert [line for line in person.shown if not line.endswith(":")] == [
        '"A" is shorter than 2 characters',
        '"huge" is not one of "small" or "large"',
        "tomorrow is not a date such as 2030-12-31",
        " is not a date such as 2030-12-31",
        "1 is greater than or equal to the maximum of 1",
        "10 is greater than the maximum of 9",
        "give a number from 1 to 2",
    ]


async def test_an_empty_line_keeps_what_was_given_before_and_leaves_out_what_is_optional() -> None:
    payload = {"limit": 30, "to": {"name": "Ada", "tags": ["a", "b"]}, "fast": False, "left": None}
    person = Person(
        [
            ("limit (a number; Enter: 30):", "40"),
            ('name (Enter: "Ada"):', ""),
            ('tags, item 1 (Enter: "a"):', ""),
            ('tags, item 2 (Enter: "b"):', "c"),
            ("tags, item 3 (optional):", ""),
            ("fast (yes or no; Enter: false):", "y"),
            ("left (Enter: null):", ""),
        ]
    )
    edited = {"limit": 40, "to": {"name": "Ada", "tags": ["a", "c"]}, "fast": True, "left": None}
    assert await person.fill(dict(schema_of(payload)), payload) == edited


@pytest.mark.parametrize(("line", "value"), [('{"customer": "Ada"}', {"customer": "Ada"}), ("{}", {})])
async def test_the_first_line_may_have_all_of_it_as_json(line: str, value: Any) -> None:
    assert await Person([("Customer", line)]).fill(SCHEMA) == value


@pytest.mark.parametrize(("line", "why"), [("/skip", "/skip"), (None, "")])
async def test_a_form_can_be_left(line: str | None, why: str) -> None:
    with pytest.raises(FormLeft, match=f"^{why}$"):
        await Person([("Customer", "Ada"), ("Size", line)]).fill(SCHEMA)


async def test_a_schema_that_refers_to_itself_ends_in_json() -> None:
    class Folder(BaseModel):
        name: str
        inner: "list[Folder]" = []

    answers = [("Name:", "a"), ("Inner: fill", "y"), ("Inner, item 1: add", "y"), ("Name:", "b"), ("Inner: fill", "")]
    filled = await Person([*answers, ("Inner, item 2: add", "")]).fill(Folder.model_json_schema())
    assert filled == {"name": "a", "inner": [{"name": "b", "inner": []}]}


def test_a_value_of_one_line_needs_no_form() -> None:
    assert not has_fields(None)
    assert not has_fields({"type": "integer"})
    assert not has_fields({"enum": ["a", "b"]})
    assert not has_fields({"type": "array", "items": {"enum": ["a"]}})
    assert has_fields({"$ref": "#/$defs/Order", "$defs": {"Order": {"properties": {"a": {}}}}})
    assert has_fields({"type": "array", "items": {"type": "string"}})
