"""Attack 22: abandoned requests of one user leave threads for the others, and views take linear time."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from markdown_it import MarkdownIt

from lango import open_runtime
from lango.adk.evaluation import session_case
from lango.runtime.sessions import session_document
from lango.testing import ScriptedProvider
from lango.tools.builtin.files import change_as_diff
from lango.tools.builtin.workspace import Workspace
from tests.agents.parts import settings_for
from tests.faults.server.test_attacks_imports import export, message
from tests.support.counted_work import check_growth, counted_calls
from tests.support.processes import TIMEOUT_S
from tests.support.runtimes import store_of
from tests.support.servers.server_process import configure, lango, send, serving

AGENT = Path(__file__).parents[2] / "support" / "servers" / "held_diff_agent.py"
_MANY = 40
"""More requests than any pool has threads."""


async def abandoned(client: httpx.AsyncClient, path: str) -> None:
    await client.get(path)


async def test_attack_22_abandoned_requests_of_one_user_leave_threads_for_others(
    tmp_path: Path, store_url: str
) -> None:
    agent = f"module = {json.dumps(str(AGENT))}"
    configure(tmp_path, store_url, agent=agent)
    alice, bob = [lango("keys", "add", "--user", user, cwd=tmp_path).stdout.strip() for user in ("alice", "bob")]
    began = tmp_path / "began"
    env = {"LANGO_HELD_FOLDER": str(tmp_path)}
    with serving(tmp_path, store_url, agent=agent, server='auth = "keys"', env=env) as server:
        async with (
            server.client(Authorization=f"Bearer {alice}") as hers,
            server.client(Authorization=f"Bearer {bob}") as his,
            asyncio.timeout(TIMEOUT_S),
        ):
            for client in (hers, his):
                await client.post("/v1/sessions", json={"id": "s"})
            await send(hers, "s", "go")
            reading = [asyncio.create_task(abandoned(hers, "/v1/sessions/s/waits")) for _ in range(_MANY)]
            while not began.exists() or began.read_text().count("\n") < 2:
                await asyncio.sleep(0.01)
            for task in reading:
                task.cancel()
            await asyncio.wait(reading)
            for _ in range(5):
                trace = await his.get("/v1/sessions/s/trace")
                assert trace.status_code == 200, trace.text
                assert (await his.get("/v1/sessions/s/export?format=html")).status_code == 200
            assert began.read_text().count("\n") == 2, "one user has two threads at once"
            (tmp_path / "go").touch()
            shown = (await hers.get("/v1/sessions/s/waits")).json()["waits"]
            assert [one["diff"] for one in shown] == ["shown"]
            assert began.read_text().count("\n") == 3, "the requests that waited ended with their readers"


# -- documents and test cases -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["[a][", "paragraph\n\n", "`", "*a **b ", "> ", "- a\n  ", "![a](", "<a "])
def test_attack_22_a_document_takes_time_linear_in_its_text(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured with markdown-it 4: a megabyte of `[a][` takes 17 s at once. Pieces are small here: ten tell as much."""
    monkeypatch.setattr(session_document, "_MAX_RENDERED_CHARACTERS", 1_000)
    render = MarkdownIt.render
    sizes: list[int] = []

    def noted_render(self: MarkdownIt, src: str, env: Any = None) -> str:
        sizes.append(len(src))
        return render(self, src, env)

    monkeypatch.setattr(MarkdownIt, "render", noted_render)
    session_document.rendered("warm up")
    check_growth(lambda size: counted_calls(session_document.rendered, text * (size // len(text))), 5_000)
    assert max(sizes) <= 1_000 + len("```\n\n```\n"), "no count shows what a regular expression reads again"


def test_a_long_text_is_rendered_as_a_short_one_is() -> None:
    paragraphs = "# Title\n\nSome *words* of it.\n\n```\ncode **as is**\n\nmore code\n```\n\n"
    shown = session_document.rendered(paragraphs * 2_000)
    assert shown.count("<h1>Title</h1>") == shown.count("<em>words</em>") == 2_000
    assert shown.count("code **as is**") == shown.count("more code") == 2_000
    assert "<strong>" not in shown
    assert "```" not in shown


async def test_attack_23_documents_and_test_cases_are_made_outside_the_event_loop(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[str, set[int]] = {"html": set(), "case": set()}
    render, to_invocation = MarkdownIt.render, session_case.Invocation

    def noted_render(self: MarkdownIt, src: str, env: Any = None) -> str:
        threads["html"].add(threading.get_ident())
        return render(self, src, env)

    def noted_case(**fields: Any) -> Any:
        threads["case"].add(threading.get_ident())
        return to_invocation(**fields)

    monkeypatch.setattr(MarkdownIt, "render", noted_render)
    monkeypatch.setattr(session_case, "Invocation", noted_case)
    lines = export(message(1, "user", "go"), message(2, "assistant", "some *words*\n\n" * 100))
    async with open_runtime(settings_for(store_url), provider=ScriptedProvider([])) as runtime:
        session = await runtime.sessions.import_lines(lines)
        page = "".join([part async for part in runtime.sessions.export_document("s", "html")])
        assert page.count("<em>words</em>") == 100
        case = await session_case.session_eval_set(store_of(runtime), session.name)
        assert len(case["eval_cases"]) == 1
    assert all(threads.values())
    assert threading.get_ident() not in threads["html"] | threads["case"]


# -- diffs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["same lines", "other lines", "moved lines"])
def test_attack_22_a_diff_takes_time_linear_in_its_lines(tmp_path: Path, kind: str) -> None:
    """Measured: two texts of 100 kB with short lines took a minute."""
    workspace = Workspace(tmp_path)

    def work(size: int) -> int:
        before = [str(number % 97) for number in range(size)]
        changed = {"same lines": before[::-1], "other lines": [f"{line}x" for line in before]}
        after = changed.get(kind, before[5:] + before)
        (tmp_path / f"{size}.txt").write_text("\n".join(before))
        arguments = {"path": f"{size}.txt", "content": "\n".join(after[:size])}
        return counted_calls(change_as_diff, workspace, arguments)

    check_growth(work, 3_000)
