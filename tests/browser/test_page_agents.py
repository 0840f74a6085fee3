"""The page names the agent and its model, and lets the user choose among several agents."""

import re
from pathlib import Path

from playwright.async_api import Page, expect

from lango.config import AgentSettings, ChoiceSettings
from tests.browser.conftest import OpenPage
from tests.browser.page_actions import answer, send, wait_until_finished
from tests.browser.page_monitor import PageMonitor, check_accessibility
from tests.browser.site import serving_script
from tests.support.servers.server_process import serving

FOLDER = Path(__file__).parents[1] / "support" / "servers" / "agent_folder"


async def test_each_agent_has_its_own_conversations(page: Page, monitor: PageMonitor, tmp_path: Path) -> None:
    with serving(tmp_path, f"sqlite:///{tmp_path}/lango.db", str(FOLDER), name="", agent="max_turns = 5") as server:
        await page.goto(server.url)
        picker = page.get_by_role("combobox", name="Agent")
        await expect(picker).to_have_value("anna")
        await expect(page.locator("#model")).to_have_text("echo-anna")
        await send(page, "first")
        await wait_until_finished(page)
        await expect(answer(page)).to_contain_text("anna heard first")
        await check_accessibility(page)
        await picker.select_option("ben")
        await expect(page).to_have_url(re.compile(r"\?agent=ben#/$"))
        await expect(page.locator("#model")).to_have_text("echo-ben")
        await expect(page.locator("#list")).to_contain_text("Your conversations appear here.")
        await send(page, "second")
        await wait_until_finished(page)
        await expect(answer(page)).to_contain_text("ben heard second")
        await expect(page.locator("#list a")).to_have_text(["second"])
        await page.get_by_role("button", name="New conversation").click()
        await expect(page).to_have_url(re.compile(r"\?agent=ben#/$"))
        await send(page, "third")
        await wait_until_finished(page)
        await expect(answer(page)).to_contain_text("ben heard third")
        await expect(page).to_have_url(re.compile(r"\?agent=ben#/s/"))
        # a link to a conversation alone shows its agent
        await page.goto(f"{server.url}/{page.url[page.url.index('#') :]}")
        await expect(picker).to_have_value("ben")
        await expect(answer(page)).to_contain_text("ben heard third")
        await page.goto(f"{server.url}/?agent=ben")
        await expect(picker).to_have_value("ben")
        monitor.expect("404")
        await page.goto(f"{server.url}/?agent=nobody")
        await expect(picker).to_have_value("anna")
        await expect(page).to_have_url(f"{server.url}/")
        await page.goto("about:blank")  # the page would report that its server is gone


async def test_the_header_names_a_single_agent_and_its_model(page: Page, tmp_path: Path) -> None:
    anna = str(FOLDER / "anna")
    with serving(tmp_path, f"sqlite:///{tmp_path}/lango.db", anna, name="", agent="max_turns = 5") as server:
        await page.goto(server.url)
        await expect(page.locator("#model")).to_have_text("anna · echo-anna")
        await expect(page.get_by_role("combobox", name="Agent")).to_be_hidden()
        await page.goto("about:blank")


async def test_the_model_and_the_instruction_of_a_conversation_can_be_chosen(page: Page, tmp_path: Path) -> None:
    agent = AgentSettings(model="openai/small", choices=ChoiceSettings(models=["openai/large"], instruction=True))
    async with serving_script(tmp_path, ["first", "second", "third"], agent=agent) as site:
        await page.goto(site.url)
        model, instruction = page.get_by_label("Model", exact=True), page.get_by_role("button", name="Instruction")
        await expect(page.locator("#model")).to_have_text("lango")
        await expect(model).to_have_value("")
        await model.select_option("openai/large")
        await send(page, "with the large one")
        await wait_until_finished(page)
        await instruction.click()
        written = page.get_by_role("textbox", name="Instruction of this conversation")
        await expect(written).to_have_value(re.compile("You are a helpful assistant"))
        await written.fill("Answer in verse.")
        await page.get_by_role("button", name="Save").click()
        await expect(instruction).to_have_attribute("aria-pressed", "true")
        await check_accessibility(page)
        await send(page, "in verse")
        await wait_until_finished(page)
        await page.reload()
        await expect(model).to_have_value("openai/large")
        await expect(instruction).to_have_attribute("aria-pressed", "true")
        await page.get_by_role("button", name="New conversation").click()
        await expect(model).to_have_value("")
        await send(page, "as configured")
        await wait_until_finished(page)
        asked = [(request.model, request.system.startswith("Answer in verse.")) for request in site.provider.requests]
        assert asked == [("large", False), ("large", True), ("small", False)]
        await page.goto("about:blank")


async def test_the_choices_fit_into_the_header_of_a_phone(open_page: OpenPage, tmp_path: Path) -> None:
    page = await open_page(viewport={"width": 390, "height": 800})
    name = "openai/a-model-with-a-very-long-name-of-its-own"
    agent = AgentSettings(model=name, choices=ChoiceSettings(models=[f"{name}-2"], instruction=True))
    async with serving_script(tmp_path, ["answer"], agent=agent) as site:
        await page.goto(site.url)
        await send(page, "hello")
        await wait_until_finished(page)
        instruction = await page.get_by_role("button", name="Instruction").bounding_box()
        details = await page.get_by_role("button", name="Details of this conversation").bounding_box()
        assert instruction
        assert details
        assert instruction["x"] + instruction["width"] <= details["x"]
        await page.goto("about:blank")
