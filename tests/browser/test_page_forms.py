"""Forms on the page: a person's input for a pydantic model, field by field and as JSON."""

import json
from collections.abc import AsyncGenerator
from datetime import date, datetime
from enum import Enum
from pathlib import Path
from typing import Any, Literal

from google.adk.events import RequestInput
from google.adk.workflow import START, Workflow, node
from playwright.async_api import Page, expect
from pydantic import BaseModel, Field

from tests.browser.page_actions import answer, send, wait_until_finished
from tests.browser.page_monitor import PageMonitor, check_accessibility
from tests.browser.site import serving_script


class Size(Enum):
    """How large something is."""

    SMALL = "small"
    LARGE = "large"


class Address(BaseModel):
    """Where something goes."""

    street: str
    city: str = "Bern"


class Item(BaseModel):
    """What is ordered."""

    name: str
    count: int = Field(1, ge=1, le=9)


class Order(BaseModel):
    """An order, with every kind of field."""

    customer: str = Field(min_length=2, description="Who pays")
    size: Size = Size.SMALL
    urgent: bool = False
    due: date
    at: datetime | None = None
    discount: float | None = Field(None, ge=0, lt=1)
    tags: list[str] = []
    items: list[Item]
    address: Address
    billing: Address | None = None
    extras: dict[str, int] = {}
    pay: Literal["card", "cash"] = "card"
    sizes: set[Size] = set()
    shelf: int | str = 3


async def ask(node_input: Any) -> AsyncGenerator[Any, None]:
    yield RequestInput(message="What do you order?", response_schema=Order)


def confirm(node_input: Any) -> str:
    order = Order.model_validate(node_input)
    return f"{order.customer} orders {order.model_dump_json(exclude_unset=True)}"


asked, confirmed = node(ask), node(confirm)
SHOP = Workflow(name="shop", edges=[(START, asked), (asked, confirmed)])
DEFAULTS: dict[str, Any] = {
    "size": "small",
    "urgent": False,
    "tags": [],
    "extras": {},
    "pay": "card",
    "sizes": [],
    "shelf": 3,
}


async def test_a_form_of_a_pydantic_model_is_filled_in_by_its_fields_and_as_json(
    page: Page, tmp_path: Path, monitor: PageMonitor
) -> None:
    monitor.expect("422")
    async with serving_script(tmp_path, root_agent=SHOP) as site:
        await page.goto(site.url)
        await send(page, "order")
        await wait_until_finished(page)
        form = page.get_by_role("group", name="What do you order?")
        give, problem = form.get_by_role("button", name="Answer"), form.locator(".wait-problem")
        await give.click()
        await expect(problem).to_have_text("Customer: a value is missing")
        await form.get_by_label("Customer").fill("Ann")
        await form.get_by_label("Due").fill("2026-12-24")
        await form.get_by_label("Discount").fill("1")
        await form.get_by_role("button", name="Add to Items").click()
        await form.get_by_label("Name").fill("tea")
        await form.get_by_label("Count", exact=True).fill("10")
        await give.click()
        await expect(problem).to_contain_text("Discount: it must be less than 1")
        await form.get_by_label("Discount").fill("0.5")
        await give.click()
        await expect(problem).to_contain_text("Items: item 1: Count: ")
        await form.get_by_label("Count", exact=True).fill("2")
        await form.get_by_label("Give billing").check()
        await form.get_by_role("group", name="address").get_by_label("Street").fill("Lane 1")
        await form.get_by_role("group", name="billing").get_by_label("Street").fill("Lane 2")
        await form.get_by_label("Kind of Shelf").select_option("text")
        await form.get_by_label("Shelf", exact=True).fill("top")
        await form.get_by_role("button", name="Add to Tags").click()
        await form.get_by_label("Tags, item 1").fill("hot")
        await form.locator(".raw > summary").click()
        written = form.get_by_label("The whole value as JSON")
        value = json.loads(await written.input_value())
        expected = {"customer": "Ann", "due": "2026-12-24", "discount": 0.5, "items": [{"name": "tea", "count": 2}]}
        expected |= {"tags": ["hot"], "shelf": "top", "address": {"street": "Lane 1", "city": "Bern"}}
        assert value == DEFAULTS | expected | {"billing": {"street": "Lane 2", "city": "Bern"}}
        await check_accessibility(page, "light", "dark")

        await written.fill(json.dumps(value | {"items": [{"name": "tea"}, {"name": "jam"}], "billing": None}))
        await expect(form.get_by_label("Name")).to_have_count(2)
        await expect(form.get_by_label("Give billing")).not_to_be_checked()
        await page.reload()
        await form.locator(".raw > summary").click()
        await written.fill(json.dumps(expected | {"sizes": ["large"], "at": "2026-12-24T10:00:00Z", "discount": 7}))
        await expect(form.get_by_label("Sizes")).to_have_values(["1"])
        await give.click()
        await expect(problem).to_contain_text("does not fit the schema")
        await form.get_by_label("Discount").fill("0.25")
        await give.click()
        await expect(answer(page)).to_contain_text("Ann orders")
        await expect(answer(page)).to_contain_text('"discount":0.25')
        await expect(answer(page)).to_contain_text('"at":"2026-12-24T10:00:00Z"')
        await expect(answer(page)).to_contain_text('"sizes":["large"]')
        await wait_until_finished(page)
        await page.goto("about:blank")  # before the server stops: the page would reconnect
