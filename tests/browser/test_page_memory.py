"""The memory view: notes that link to their messages, and notes and facts that can be changed and deleted."""

import re
from collections.abc import AsyncIterator
from itertools import islice

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from lango.config import MemorySettings
from lango.providers import Request
from lango.testing import Answer
from tests.agents.memory_parts import Roles, noted, shown_to
from tests.browser.page_monitor import check_accessibility
from tests.browser.site import Site, serving_script

WORDS = "and a good many words more, so that it is enough for a note that is made of it afterwards"
EVIL = "<img src=x onerror=alert(1)>"


def observer(request: Request) -> Answer:
    """Note every line; the message about Bern contains a fact."""
    fact = "\n- [fact] (1-1) home city: lives in Bern" if "Bern" in shown_to(request) else ""
    return noted(request).replace("[medium]", "[high]") + fact


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    memory = MemorySettings(
        enabled=True, user_facts=True, observe_at_tokens=90, reflect_at_tokens=100_000, keep_turns=1
    )
    roles = Roles(agent=lambda _: f"I see, {WORDS}", observer=observer)
    async with serving_script(tmp_path_factory.mktemp("memory"), islice(roles.script(), 1_000), memory=memory) as site:
        await site.runtime.run("s", f"I live in Bern, {WORDS} {EVIL}")
        for number in range(2, 31):
            await site.runtime.run("s", f"This is thing number {number}, {WORDS}")
            await site.runtime.memory.settle()
        yield site


async def open_memory(page: Page, site: Site) -> None:
    await page.goto(f"{site.url}/#/s/s")
    await expect(page.get_by_role("article", name="Answer").last).to_be_visible()
    await page.get_by_role("button", name="Details of this conversation").click()
    await page.get_by_role("tab", name="Memory").click()


async def test_notes_are_accessible_and_show_their_cost_origin_and_messages(page: Page, site: Site) -> None:
    await open_memory(page, site)
    panel = page.get_by_role("tabpanel", name="Memory")
    notes = panel.get_by_role("list", name="Notes").get_by_role("listitem")
    remembered = await site.runtime.memory.show("s")
    shown = remembered.notes
    await expect(notes).to_have_count(len(shown))
    first = notes.first
    await expect(first).to_contain_text(f"I live in Bern, {WORDS} {EVIL}")
    await expect(first).to_contain_text("high")
    await expect(first).to_contain_text("observation · scripted/")
    await expect(first).to_contain_text(re.compile(r"batch 1: [\d,]+ tokens in, \d+ out"))
    await expect(panel.get_by_text(f"Messages up to {remembered.observed_seq} were observed.")).to_be_visible()
    await check_accessibility(page, "light", "dark")
    spent = (await site.runtime.sessions.usage("s")).memory
    await page.get_by_role("tab", name="Usage").click()
    totals = page.get_by_role("tabpanel", name="Usage").locator(".totals")
    await expect(totals.locator("div", has_text="Memory calls")).to_contain_text(str(spent.model_calls))
    thousands = f"{round((spent.input_tokens + spent.output_tokens) / 1000, 1):g}k"
    await expect(totals.locator("div", has_text="Tokens for memory")).to_contain_text(thousands)
    await page.get_by_role("tab", name="Memory").click()
    source = page.get_by_role("article", name="You").filter(has_text="I live in Bern")
    await expect(source).to_have_count(0)  # not loaded yet
    await first.get_by_role("link", name="message 1", exact=True).click()
    await expect(source).to_be_in_viewport()


async def test_a_note_can_be_pinned_corrected_and_forgotten(page: Page, site: Site) -> None:
    await open_memory(page, site)
    first = page.get_by_role("list", name="Notes").get_by_role("listitem").nth(1)
    [_, note, *_] = (await site.runtime.memory.show("s")).notes
    await first.get_by_role("button", name=f"Pin note {note.id}", exact=True).click()
    await expect(first.get_by_role("button", name=f"Unpin note {note.id}")).to_be_visible()
    await first.get_by_role("button", name=f"Correct note {note.id}").click()
    await page.get_by_role("dialog").get_by_role("textbox", name="What holds").fill("It was about <b>pears</b>.")
    await page.get_by_role("dialog").get_by_role("button", name="Save").click()
    await expect(first).to_contain_text("It was about <b>pears</b>.")
    await first.get_by_role("button", name=f"Forget note {note.id}").click()
    await expect(page.get_by_text("It was about <b>pears</b>.")).to_have_count(0)
    assert note.id not in [one.id for one in (await site.runtime.memory.show("s")).notes]


async def test_a_fact_can_be_forgotten(page: Page, site: Site) -> None:
    await open_memory(page, site)
    facts = page.get_by_role("list", name="Facts").get_by_role("listitem")
    await expect(facts).to_have_count(1)
    await expect(facts.first).to_contain_text("home city: lives in Bern")
    await facts.get_by_role("button", name="Forget home city").click()
    await expect(page.get_by_text("No facts are kept across conversations.")).to_be_visible()
    assert await site.runtime.memory.facts() == []


async def test_rewound_notes_are_shown_on_request(page: Page, site: Site) -> None:
    await site.runtime.sessions.rewind("s", before=41)
    await open_memory(page, site)
    panel = page.get_by_role("tabpanel", name="Memory")
    rewound = panel.get_by_text("removed by a rewind")
    await expect(panel.get_by_role("list", name="Notes")).to_be_visible()
    await expect(rewound).to_have_count(0)
    await panel.get_by_role("checkbox", name="Include condensed and rewound notes").check()
    await expect(rewound.first).to_be_visible()


async def test_the_usage_view_shows_the_tokens_of_notes(page: Page, site: Site) -> None:
    await open_memory(page, site)
    await page.get_by_role("tab", name="Usage").click()
    window = (await site.runtime.sessions.usage("s")).window
    assert window.memory_tokens
    note = f"Notes of the messages up to {window.observed_seq} take {window.memory_tokens:,} tokens."
    await expect(page.get_by_role("tabpanel", name="Usage").get_by_text(note)).to_be_visible()
