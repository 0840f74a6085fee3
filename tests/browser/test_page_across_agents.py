"""One inbox, one search and one overview for all agents of a server."""

import json
from collections.abc import Iterator

import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import OpenPage
from tests.browser.page_actions import answer, ask, send
from tests.browser.page_monitor import check_accessibility
from tests.support.servers.server_process import serving

AGENT = '''
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.tools import FunctionTool
from google.genai import types


def pay(euros: int) -> dict:
    """Pay."""
    return {{"paid": euros}}


class Model(BaseLlm):
    async def generate_content_async(self, request, stream=False):
        last = request.contents[-1].parts[-1]
        if last.text == "fail":
            raise RuntimeError("the model is gone")
        if last.text == "pay":
            part = types.Part(function_call=types.FunctionCall(name="pay", args={{"euros": 5}}))
        else:
            part = types.Part(text=f"{name} heard {{last.text or 'a result'}}")
        usage = types.GenerateContentResponseUsageMetadata(prompt_token_count=1000, candidates_token_count=100)
        yield LlmResponse(content=types.Content(role="model", parts=[part]), usage_metadata=usage)


root_agent = LlmAgent(
    name="{name}", model=Model(model="model-of-{name}"), tools=[FunctionTool(pay, require_confirmation=True)]
)
'''


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("across")
    for name in ("anna", "ben"):
        (folder / "agents" / name).mkdir(parents=True)
        (folder / "agents" / name / "agent.py").write_text(AGENT.format(name=name))
    prices = 'prices = {"model-of-anna" = {input = 2.0, output = 10.0}}'
    with serving(folder, f"sqlite:///{folder}/lango.db", str(folder / "agents"), name="", agent=prices) as server:
        yield server.url


async def test_one_inbox_and_one_search_over_all_agents(page: Page, open_page: OpenPage, url: str) -> None:
    elsewhere = await open_page()
    await elsewhere.goto(f"{url}/?agent=anna")
    await expect(elsewhere.get_by_role("button", name="Inbox", exact=True)).to_be_visible()
    await page.goto(f"{url}/?agent=anna")
    await ask(page, "where is the zebra", "anna heard where is the zebra")
    await page.goto(f"{url}/?agent=ben")
    await ask(page, "a zebra was here", "ben heard a zebra was here")
    await send(page, "pay")
    await expect(page.get_by_role("button", name="Approve", exact=True)).to_be_visible()
    await expect(elsewhere.get_by_role("button", name="Inbox: 1 waiting")).to_be_visible()  # it is live
    await elsewhere.goto("about:blank")

    await page.goto(f"{url}/?agent=anna")
    await page.get_by_role("searchbox", name="Search your conversations").fill("zebra")
    hits = page.get_by_role("list", name="Found").get_by_role("listitem")
    await expect(hits.filter(has_text="ben")).to_have_count(2)
    await hits.filter(has_text="ben").first.get_by_role("link").click()
    await expect(page.get_by_role("combobox", name="Agent")).to_have_value("ben")

    await page.goto(f"{url}/?agent=anna")
    await page.get_by_role("button", name="Inbox: 1 waiting").click()
    inbox = page.get_by_role("dialog", name="Inbox")
    item = inbox.get_by_role("list").get_by_role("listitem").filter(has_text="a zebra was here")
    await expect(item).to_contain_text("ben")
    await item.get_by_role("button", name="Approve", exact=True).click()
    await expect(inbox.get_by_text("Nothing is waiting for you.")).to_be_visible()
    await page.goto(f"{url}/?agent=ben")
    await page.locator("#list a").first.click()
    await expect(answer(page)).to_contain_text("ben heard a result")
    await page.goto("about:blank")


async def test_the_overview_shows_cost_tokens_time_and_errors(open_page: OpenPage, url: str) -> None:
    page = await open_page()
    await page.goto(f"{url}/?agent=anna")
    await send(page, "fail")
    await expect(page.get_by_text("the model is gone").first).to_be_visible()
    before = json.loads(await (await page.request.get(f"{url}/v1/usage")).text())
    calls = {row["model"]: row["calls"] for row in before["models"]}
    assert calls.keys() >= {"model-of-anna", "model-of-ben"}
    await page.get_by_role("button", name="Overview").click()
    dialog = page.get_by_role("dialog", name="Overview")
    rows = dialog.get_by_role("region", name="By agent and model").locator("tbody tr")
    await expect(rows.filter(has_text="model-of-anna")).to_contain_text("$0.0030")
    await expect(rows.filter(has_text="model-of-ben")).to_contain_text("not known")
    await expect(dialog.get_by_text("anna: 1 failed of 2 turns.")).to_be_visible()
    await expect(dialog.get_by_role("img", name="Tokens per day")).to_be_visible()
    await dialog.get_by_role("combobox", name="Agent").select_option("ben")
    await expect(rows).to_have_count(1)
    await check_accessibility(page, "light", "dark")
    await page.goto("about:blank")
