"""Memory as a user looks at it: over HTTP, on the command line, in Python; and what one user cannot see of another."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from lango import open_runtime
from lango.errors import SessionNotFound
from lango.providers import Request
from tests.agents.memory_parts import Roles, noted, quoted, remembering, session_of, shown_to
from tests.support.runtimes import store_of
from tests.support.servers.server_process import TIMEOUT_S, lango, send, serving

ROOT = Path(__file__).parents[3]
AGENT = ROOT / "tests" / "support" / "servers" / "remembering_agent.py"
MEMORY = "[memory]\nenabled = true\nuser_facts = true\nobserve_at_tokens = 20\n"
PYTHONPATH = {"PYTHONPATH": str(ROOT)}


async def observed(client: httpx.AsyncClient, session: str, last_seq: int) -> dict[str, Any]:
    """Wait until a session was observed up to a message: that happens after the turn, without an event."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            answer = await client.get(f"/v1/sessions/{session}/memory")
            assert answer.status_code == 200, answer.text
            if answer.json()["observed_seq"] >= last_seq:
                return answer.json()
            await asyncio.sleep(0.05)


async def test_o2_http_and_the_command_line_show_notes_with_their_sources_and_facts(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lango.db"
    agent = f"module = {json.dumps(str(AGENT))}"
    with serving(tmp_path, url, agent=agent, rest=MEMORY, env=PYTHONPATH) as server:
        async with server.client() as client:
            await send(client, "one", "hello there, this is a first message with a few words in it")
            await send(client, "one", "fact home city: Bern, and some more words so that it is observed")
            memory = await observed(client, "one", 4)
            first = memory["observations"][0]
            assert (first["id"], first["generation"], first["standing"]) == ("1.1", 0, "current")
            assert first["text"].endswith("hello there, this is a first message with a few words in it")
            assert first["first_seq"] == first["last_seq"] == 1
            assert first["model"] == "scripted/scripted"
            assert first["input_tokens"] > first["output_tokens"] > 0
            assert (await client.get("/v1/sessions/one/memory?all=true")).json() == memory
            assert (await client.get("/v1/sessions/two/memory")).status_code == 404
            spent = (await client.get("/v1/sessions/one/usage")).json()["memory"]
            batches = {note["batch"]: note for note in memory["observations"]}.values()
            assert spent["model_calls"] == len(batches)
            assert spent["input_tokens"] == sum(note["input_tokens"] for note in batches)

            await send(client, "two", "and now in another session, where was I from again, please?")
            [fact] = (await client.get("/v1/memory")).json()["facts"]
            assert (fact["name"], fact["session_id"], fact["first_seq"]) == ("home city", "one", 3)
            assert fact["text"].startswith("Bern")
            shown = lango("memory", "show", "one", cwd=tmp_path)
            assert "batch 1 (generation 0, observed)" in shown.stdout
            assert "1.1 [medium] " in shown.stdout
            assert "(messages 1-1) said: #1" in shown.stdout
            as_json = lango("memory", "show", "one", "--json", "--all", cwd=tmp_path).stdout.splitlines()
            assert [json.loads(line)["id"] for line in as_json] == [one["id"] for one in memory["observations"]]
            output = lango("memory", "facts", cwd=tmp_path)
            assert "home city: Bern" in output.stdout
            assert "[session one, messages 3-3" in output.stdout
            assert json.loads(lango("memory", "facts", "--json", cwd=tmp_path).stdout)["id"] == fact["id"]

            note = "/v1/sessions/one/memory/1.1"
            assert (await client.patch(note, json={"pinned": True})).json() == {"changed": True}
            assert lango("memory", "pin", "1.1", "--session", "one", "--undo", cwd=tmp_path).stdout == "unpinned 1.1\n"
            assert (await client.patch(note, json={"text": " the first greeting "})).json() == {"changed": True}
            assert "1.1 [pinned] " in (output := lango("memory", "show", "one", cwd=tmp_path).stdout)
            assert "(messages 1-1) the first greeting" in output
            for wrong in ({"text": ""}, {"text": "x" * 1_001}, {"other": 1}):
                assert (await client.patch(note, json=wrong)).status_code == 400
            assert (await client.delete(note)).json() == {"forgotten": True}
            assert (await client.patch(note, json={"pinned": True})).json() == {"changed": False}
            assert (await client.patch("/v1/sessions/two/memory/7.1", json={})).json() == {"changed": False}
            assert (await client.delete("/v1/sessions/nowhere/memory/1.1")).status_code == 404
            assert "has no note 1.1" in lango("memory", "forget", "1.1", "--session", "one", cwd=tmp_path).stderr
            path = f"/v1/memory/{fact['id']}"
            assert (await client.patch(path, json={"text": "Basel"})).json() == {"changed": True}
            [fact] = (await client.get("/v1/memory")).json()["facts"]
            assert (fact["text"], fact["pinned"]) == ("Basel", True)
            assert (
                lango("memory", "correct", str(fact["id"]), "Chur", cwd=tmp_path).stdout == f"corrected {fact['id']}\n"
            )
            [fact] = (await client.get("/v1/memory")).json()["facts"]
            assert fact["text"] == "Chur"

            gone = await client.delete(f"/v1/memory/{fact['id']}")
            assert gone.json() == {"forgotten": True}
            assert (await client.delete(f"/v1/memory/{fact['id']}")).json() == {"forgotten": False}
            assert (await client.delete("/v1/memory/none")).status_code == 400
            assert (await client.get("/v1/memory")).json() == {"facts": []}
            again = lango("memory", "forget", str(fact["id"]), cwd=tmp_path)
            assert again.returncode == 2
            assert again.stderr.startswith("lango: there is no fact")
            assert lango("memory", "facts", cwd=tmp_path).stdout == "No facts yet.\n"
            nowhere = lango("memory", "show", "nowhere", cwd=tmp_path)
            assert nowhere.returncode == 2
            assert "lango sessions list" in nowhere.stderr


async def test_attack_6_the_memory_of_another_user_is_not_found(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lango.db"
    agent = f"module = {json.dumps(str(AGENT))}"
    keys = [
        lango("keys", "add", "--user", name, "--store", url, cwd=tmp_path).stdout.split()[-1] for name in ("ann", "bob")
    ]
    with serving(tmp_path, url, agent=agent, server='auth = "keys"', rest=MEMORY, env=PYTHONPATH) as server:
        ann, bob = (server.client(Authorization=f"Bearer {key}") for key in keys)
        async with ann, bob, server.client() as nobody:
            await ann.post("/v1/sessions", json={"id": "one"})
            await send(ann, "one", "fact secret: a word that only Ann knows, and many words more than that")
            await observed(ann, "one", 2)
            [fact] = (await ann.get("/v1/memory")).json()["facts"]
            assert (await bob.get("/v1/sessions/one/memory")).status_code == 404
            assert (await bob.get("/v1/memory")).json() == {"facts": []}
            assert (await bob.delete(f"/v1/memory/{fact['id']}")).json() == {"forgotten": False}
            assert (await bob.patch(f"/v1/memory/{fact['id']}", json={"text": "x"})).json() == {"changed": False}
            assert (await bob.patch("/v1/sessions/one/memory/1.1", json={"text": "x"})).status_code == 404
            assert (await bob.delete("/v1/sessions/one/memory/1.1")).status_code == 404
            assert (await ann.get("/v1/memory")).json()["facts"] == [fact]
            for path in ("/v1/memory", "/v1/sessions/one/memory"):
                assert (await nobody.get(path)).status_code == 401


async def test_facts_are_off_by_default_offered_to_new_sessions_and_replaced(sqlite_url: str) -> None:
    def observer(request: Request) -> str:
        transcript = shown_to(request).rpartition("Transcript:")[2]
        facts = {"I live in Bern": "home city: Bern", "I moved to Basel": "home_city: Basel now"}
        learned = [f"- [fact] (1) {fact}" for said, fact in facts.items() if said in transcript]
        return "\n".join([noted(request), *learned])

    words = "and many more words than that, so that the observer has a look at it " * 4
    roles = Roles(observer=observer)
    async with open_runtime(remembering(sqlite_url, observe_at_tokens=64), provider=roles.provider) as runtime:
        await runtime.run("first", f"I live in Bern {words}", user_id="ann")
        await runtime.memory.settle()
        assert await runtime.memory.facts(user_id="ann") == [], "off by default"
        await runtime.run("new", "hello", user_id="ann")
        assert quoted(roles.agent[-1]) == ""
    async with open_runtime(
        remembering(sqlite_url, observe_at_tokens=64, user_facts=True), provider=roles.provider
    ) as runtime:
        await runtime.run("second", f"I live in Bern {words}", user_id="ann")
        await runtime.memory.settle()
        await runtime.run("third", f"I moved to Basel {words}", user_id="ann")
        assert "home city: Bern" in quoted(roles.agent[-1])
        assert "<user_facts>" in quoted(roles.agent[-1])
        await runtime.memory.settle()
        assert "home city: Bern" in shown_to(roles.observer[-1]), "so that it uses the name again"
        await runtime.run("fourth", "where do I live?", user_id="ann")
        assert "Basel now" in quoted(roles.agent[-1])
        assert "Bern" not in quoted(roles.agent[-1])
        await runtime.run("fourth", "where do I live?", user_id="bob")
        assert quoted(roles.agent[-1]) == "", "of no other user"
        await store_of(runtime).delete_session((await session_of(runtime, "third", "ann")).name)
        assert [fact.text for fact in await runtime.memory.facts(user_id="ann")] == ["Bern"]
        [fact] = await runtime.memory.facts(user_id="ann")
        assert await runtime.memory.forget(fact.id, user_id="ann")
        await runtime.run("fifth", "where do I live?", user_id="ann")
        assert quoted(roles.agent[-1]) == ""
        with pytest.raises(SessionNotFound):
            await runtime.memory.show("nowhere")


def test_the_agents_own_model_that_cannot_observe_is_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(
        "from google.adk.agents import LlmAgent\nroot_agent = LlmAgent(name='a', model='gemini-2.5-flash')\n"
    )
    (tmp_path / "lango.toml").write_text('[agent]\nmodule = "agent.py"\n[memory]\nenabled = true\n')
    output = lango("run", "hello", cwd=tmp_path, env={"GOOGLE_API_KEY": os.environ.get("GOOGLE_API_KEY", "x")})
    assert output.returncode == 2
    assert "memory.model" in output.stderr
