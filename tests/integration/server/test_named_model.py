"""The page's routes that replace the demonstration model by one that an operator names, with its key."""

import logging
from pathlib import Path
from typing import Any

import httpx
import pytest
from google.adk.agents import LlmAgent

from lango import Settings, open_runtime
from lango.adk.run.engine import ContextLimits
from lango.errors import UsageError
from lango.providers.catalog import resolve
from lango.runtime.runtime import Runtime
from lango.server.app import create_app
from lango.store.api_keys import add_key, new_secret
from tests.agents.parts import bring_demonstration_model
from tests.support.runtimes import store_of
from tests.support.servers.wire_server import chat_for_key, wire_server

KEY, WRONG_KEY = "the-right-key-of-the-lab", "a-wrong-key-of-the-lab"
_PATH = "/page/demonstration/model"


def settings_with(store_url: str, lab_url: str, **sections: Any) -> Settings:
    lab = {"type": "openai", "base_url": f"{lab_url}/v1", "api_key_env": "KEY_OF_THE_LAB"}
    values = {"store": {"url": store_url}, "providers": {"lab": lab}, "trace": {"requests": True}, **sections}
    return Settings.model_validate(values)


def client_of(settings: Settings, runtime: Runtime) -> httpx.AsyncClient:
    app = create_app(settings, runtime)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1:8787")


async def test_a_named_model_answers_once_its_key_is_right(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    models = tmp_path / "models"
    models.mkdir()
    bring_demonstration_model(monkeypatch, models)
    caplog.set_level(logging.DEBUG)
    async with wire_server(chat_for_key(KEY, "from the lab")) as lab:
        settings = settings_with(sqlite_url, lab.url)
        async with open_runtime(settings) as runtime, client_of(settings, runtime) as client:
            before = (await client.get("/page/demonstration")).json()
            assert (before["demonstration"], before["can_name"], before["named_model"]) == (True, True, "")
            answers = [
                await client.post(_PATH, json=body)
                for body in (
                    {"model": "lab/large"},
                    {"model": "lab/large", "key": WRONG_KEY},
                    {"model": "nowhere/x", "key": KEY},
                    {"model": "local/some.gguf"},
                    {"model": "lab/large", "key": {"value": WRONG_KEY}},
                )
            ]
            assert [answer.status_code for answer in answers] == [422, 422, 422, 422, 400]
            assert "KEY_OF_THE_LAB" in answers[0].text
            assert runtime.model_name == "local/default", "nothing has changed"
            with pytest.raises(UsageError, match="KEY_OF_THE_LAB"):
                resolve("lab/large", settings.providers)
            named = await client.post(_PATH, json={"model": "lab/large", "key": f" {KEY}\n"})
            assert named.json() | {"download": None} == before | {
                "download": None,
                "demonstration": False,
                "named_model": "lab/large",
                "can_download": False,
            }
            assert await runtime.run("s", "who are you?") == "from the lab"
            again = await client.post(_PATH, json={"model": "lab/larger", "key": KEY})
            assert (again.status_code, runtime.model_name) == (200, "lab/larger")
            texts = " ".join(answer.text for answer in (*answers, named, again))
            texts += str(await runtime.sessions.trace("s"))
    files = [file for file in tmp_path.rglob("*") if file.is_file() and file.parent != models]
    everything = caplog.text + texts + "".join(file.read_bytes().decode("latin-1") for file in files)
    assert KEY not in everything
    assert WRONG_KEY not in everything


async def test_only_operators_name_a_model_and_only_where_no_configuration_does(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring_demonstration_model(monkeypatch, tmp_path)
    async with wire_server(chat_for_key(KEY, "from the lab")) as lab:
        settings = settings_with(sqlite_url, lab.url, server={"auth": "keys", "operators": ["boss"]})
        async with open_runtime(settings) as runtime, client_of(settings, runtime) as client:
            body = {"model": "lab/large", "key": KEY}
            assert (await client.post(_PATH, json=body)).status_code == 401
            for user, status in (("alice", 403), ("boss", 200)):
                secret = new_secret()
                await store_of(runtime).write(add_key, user, secret, 0.0)
                client.headers["authorization"] = f"Bearer {secret}"
                assert (await client.get("/page/demonstration")).json()["can_name"] == (user == "boss")
                assert (await client.post(_PATH, json=body)).status_code == status
        configured = settings_with(sqlite_url, lab.url, agent={"model": "local/smollm2"})
        async with open_runtime(configured) as runtime, client_of(configured, runtime) as client:
            assert (await client.post(_PATH, json=body)).status_code == 409
            assert (await client.get("/page/demonstration")).json()["can_name"] is False


async def test_the_agents_with_the_same_model_and_the_memory_change_with_it(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring_demonstration_model(monkeypatch, tmp_path)
    names = {"twin": "local/default", "other": "local/smollm2"}
    subs = [LlmAgent(name=name, model=model) for name, model in names.items()]
    root = LlmAgent(name="root", sub_agents=[*subs])
    async with wire_server(chat_for_key(KEY, "1. (1-2) [high] A note from the lab.")) as lab:
        memory = {"enabled": True, "observe_at_tokens": 1, "keep_turns": 0}
        settings = settings_with(sqlite_url, lab.url, memory=memory)
        async with open_runtime(settings, root_agent=root) as runtime:
            engine: Any = vars(runtime)["_engine"]
            limits: Any = engine._limits
            assert isinstance(limits, ContextLimits)
            assert limits.thresholds
            small = limits.thresholds.notes_tokens
            await runtime.use_model("lab/large", KEY)
            assert limits.thresholds.notes_tokens > small, "the context of the local model is small"
            assert [getattr(agent.model, "model", "") for agent in (root, *subs)] == ["large", "large", "smollm2"]
            await runtime.run("s", "hello " * 200)
            await runtime.memory.settle()
            assert {exchange.body["model"] for exchange in lab.requests} == {"large"}
            assert len(lab.requests) > 2, "the test request, the answer, the observation"


async def test_an_agent_with_a_model_of_its_own_keeps_it(sqlite_url: str) -> None:
    agent = LlmAgent(name="own", model="gemini-2.5-flash")
    settings = Settings.model_validate({"store": {"url": sqlite_url}})
    async with open_runtime(settings, root_agent=agent) as runtime:
        with pytest.raises(UsageError, match="the model of own is a custom model object"):
            await runtime.use_model("lab/large", KEY)
