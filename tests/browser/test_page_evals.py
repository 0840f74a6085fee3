"""A developer saves conversations as cases on the page, edits them, runs them, and opens a failed one in the trace."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from lango.config import AgentSettings
from lango.messages import ToolCall
from lango.providers import Request
from tests.browser.page_actions import answer, ask, choose_action, send, wait_until_finished
from tests.browser.page_monitor import check_accessibility
from tests.browser.site import Site, serving_script

AGENT = '''
from google.adk.agents import LlmAgent
from google.adk.tools import FunctionTool


def refund(order: int) -> dict:
    """Pay an order back."""
    return {"refunded": order}


root_agent = LlmAgent(
    name="shop",
    model="openai/gpt-5-mini",
    instruction="Help buyers.",
    tools=[FunctionTool(refund, require_confirmation=True)],
)
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evals") / "shop"
    folder.mkdir()
    (folder / "agent.py").write_text(AGENT)
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(folder: Path) -> AsyncIterator[Site]:
    async with serving_script(folder.parent, agent=AgentSettings(module=str(folder))) as site:
        yield site


def shop(last: str) -> Any:
    """Return how the model answers: it refunds, and says `last` at the end."""

    def reply(request: Request) -> Any:
        message = request.messages[-1]
        return last if message.role == "tool" else ToolCall("c1", "refund", {"order": 7})

    return reply


def expected_calls(folder: Path) -> list[tuple[str, Any]]:
    """Return the tool calls that the saved case expects."""
    [case] = json.loads((folder / "cases.evalset.json").read_text())["eval_cases"]
    events = case["conversation"][0]["intermediate_data"]["invocation_events"]
    parts = [part["function_call"] for one in events for part in one["content"]["parts"] if part.get("function_call")]
    return [(call["name"], call["args"]) for call in parts if not call["name"].startswith("adk_")]


async def test_a_case_is_saved_edited_run_and_its_failure_opened(page: Page, site: Site, folder: Path) -> None:
    site.script.add(*[shop("Refunded.")] * 2)
    await page.goto(site.url)
    await send(page, "Refund order 7!")
    await page.get_by_role("button", name="Approve", exact=True).click()
    await expect(answer(page)).to_contain_text("Refunded.")
    await wait_until_finished(page)
    await choose_action(page, "Save as test case")
    dialog = page.get_by_role("dialog", name="Save as test case")
    await expect(dialog.get_by_label("Name of the case")).to_have_value("refund-order-7")
    await dialog.get_by_role("button", name="Save", exact=True).click()
    await expect(page.get_by_text("Saved as refund-order-7 in cases.").first).to_be_visible()
    text = (folder / "cases.evalset.json").read_text()
    assert text.count("\n") > 20, "people read the file"
    [case] = json.loads(text)["eval_cases"]
    assert case["lango"]["replies"] == [[{"answer": {"type": "approve"}, "to": "refund"}]]

    site.script.add(*[shop("Refunded.")] * 2)
    await page.get_by_role("button", name="Test cases").click()
    dialog = page.get_by_role("dialog", name="Test cases")
    row = dialog.get_by_role("listitem").filter(has_text="refund-order-7")
    await expect(row).to_contain_text("1 recorded reply")
    await expect(row).to_contain_text("not run")
    await dialog.get_by_role("button", name="Run all").click()
    await expect(row.locator(".evals-label")).to_have_text("passed")
    await expect(dialog.get_by_role("status")).to_have_text("1 of 1 passed.")

    await row.get_by_role("button", name="Edit refund-order-7").click()
    editor = page.get_by_role("dialog", name="Edit refund-order-7")
    await editor.get_by_label("Name", exact=True).fill("refund")
    await editor.get_by_label("Answers").select_option("The same text")
    calls = editor.get_by_role("group", name="Expected tool calls of message 1")
    await expect(calls.get_by_label("Tool of message 1, call 1")).to_have_value("refund")
    await expect(calls.get_by_role("spinbutton")).to_have_value("7")
    await calls.get_by_role("spinbutton").fill("8")
    await calls.get_by_role("button", name="Add a tool call").click()
    await expect(calls.get_by_role("spinbutton")).to_have_count(2)
    await calls.get_by_role("button", name="Remove message 1, call 2").click()
    await check_accessibility(page, "light", "dark")
    await editor.get_by_role("button", name="Save", exact=True).click()
    row = dialog.get_by_role("listitem").filter(has=page.get_by_text("refund", exact=True))
    await expect(row).to_be_visible()
    assert expected_calls(folder) == [("refund", {"order": 8})]
    await row.get_by_role("button", name="Edit refund").click()
    editor = page.get_by_role("dialog", name="Edit refund")
    await editor.get_by_role("spinbutton").fill("7")
    await editor.get_by_role("button", name="Save", exact=True).click()
    await expect(editor).to_have_count(0)
    for text, label in (("Refunded.", "passed"), ("I will not.", "failed, passed before")):
        site.script.add(*[shop(text)] * 2)
        await row.get_by_role("button", name="Run refund").click()
        await expect(row.locator(".evals-label")).to_have_text(label)
    await expect(dialog.get_by_role("status")).to_contain_text("1 passed in the run before.")
    await expect(row.get_by_role("img")).to_have_accessible_name("History of refund, the newest last: passed, failed")
    await row.get_by_text("Expected and actual").click()
    await expect(row.get_by_role("region").get_by_role("row").last).to_contain_text("I will not.")
    await check_accessibility(page, "light", "dark")

    async with page.expect_popup() as opening:
        await row.get_by_role("link", name="Open the conversation and its trace").click()
    failed = await opening.value
    await expect(answer(failed)).to_contain_text("I will not.")
    await failed.get_by_role("button", name="Trace of this answer").last.click()
    await expect(failed.get_by_role("tabpanel", name="Trace")).to_contain_text("refund")
    await failed.close()
    titles = [session.display_title for session in await site.runtime.sessions.list()]
    assert titles == ["Refund order 7!"], "runs have users of their own"

    await row.get_by_role("button", name="Delete refund").click()
    await page.get_by_role("dialog", name="Delete the case?").get_by_role("button", name="Delete").click()
    await expect(dialog.get_by_text("refund", exact=True)).to_have_count(0)


ORDER = {
    "type": "object",
    "properties": {"size": {"type": "integer"}, "colour": {"enum": ["red", "blue"]}},
    "required": ["size", "colour"],
}
REPLIES: list[Any] = [
    {"to": "refund", "answer": {"type": "approve", "grant": {"arguments": {"order": {"any": True}}}}},
    {"to": "refund", "answer": {"type": "approve"}},
    {
        "question": "What do you order?",
        "schema": ORDER,
        "answer": {"type": "value", "value": {"size": 1, "colour": "red"}},
    },
    {"to": "ship", "answer": {"type": "result", "result": {"at": "sea"}, "will_continue": False}},
]


async def test_the_replies_of_a_person_are_edited_as_fields(page: Page, site: Site, folder: Path) -> None:
    file = folder / "replies.evalset.json"
    exchange = {"user_content": {"role": "user", "parts": [{"text": "Go"}]}}
    case = {"eval_id": "go", "conversation": [exchange], "lango": {"replies": [REPLIES]}}
    file.write_text(json.dumps({"eval_set_id": "replies", "eval_cases": [case]}))

    def saved() -> list[Any]:
        [[replies]] = [one["lango"]["replies"] for one in json.loads(file.read_text())["eval_cases"]]
        return replies

    await page.goto(site.url)
    await page.get_by_role("button", name="Test cases").click()
    await page.get_by_role("button", name="Edit go", exact=True).click()
    editor = page.get_by_role("dialog", name="Edit go")
    replies = editor.get_by_role("group", name="What a person replies to message 1")
    await replies.get_by_label("Kind of message 1, reply 2").select_option("Refuse")
    await replies.get_by_label("Reason of message 1, reply 2").fill("Too much.")
    await replies.get_by_label("size").fill("2")
    await replies.get_by_label("colour").select_option("blue")
    await replies.get_by_role("textbox", name="at", exact=True).fill("home")
    await check_accessibility(page, "light", "dark")
    async with page.expect_response("**/page/evals/case?**"):
        await editor.get_by_role("button", name="Save", exact=True).click()
    assert saved() == [
        REPLIES[0],
        {"to": "refund", "answer": {"type": "refuse", "reason": "Too much."}},
        {**REPLIES[2], "answer": {"type": "value", "value": {"size": 2, "colour": "blue"}}},
        {"to": "ship", "answer": {"type": "result", "result": {"at": "home"}, "will_continue": False}},
    ]

    await page.get_by_role("button", name="Edit go", exact=True).click()
    for number in (4, 3, 2):
        await replies.get_by_role("button", name=f"Remove message 1, reply {number}").click()
    await replies.get_by_role("button", name="Add a reply").click()
    await editor.get_by_role("button", name="Save", exact=True).click()
    await expect(page.locator(".toast")).to_contain_text("Not saved: message 1, reply 2: name the tool")
    await replies.get_by_label("Kind of message 1, reply 2").select_option("Give a value")
    await replies.get_by_label("Value of message 1, reply 2").fill("blue")
    async with page.expect_response("**/page/evals/case?**"):
        await editor.get_by_role("button", name="Save", exact=True).click()
    assert saved() == [REPLIES[0], {"answer": {"type": "value", "value": "blue"}}]


async def test_no_one_reads_another_users_sessions(page: Page, site: Site) -> None:
    site.script.add("hello")
    await page.goto(site.url)
    await ask(page, "hi", "hello")
    refused = await page.request.get(f"{site.url}/v1/sessions?as=alice")
    assert refused.status == 403
    assert (await refused.json())["error"]["type"] == "NotAnEvaluation"
