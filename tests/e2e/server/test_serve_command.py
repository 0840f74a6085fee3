"""`lango serve` and `lango keys` print an address, or one sentence with the reason why not."""

import json
import socket
from pathlib import Path

import pytest

from tests.support.servers.server_process import configure, lango, serving


def refused(folder: Path, *arguments: str, env: dict[str, str] | None = None) -> str:
    result = lango("serve", "--port", "0", *arguments, cwd=folder, env=env)
    assert result.returncode == 2, result
    assert result.stdout == ""
    [line] = result.stderr.strip().splitlines()
    assert line.startswith("lango: ")
    return line


def test_a_port_in_use_is_one_sentence(tmp_path: Path, sqlite_url: str) -> None:
    configure(tmp_path, sqlite_url)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refused(tmp_path, "--port", str(port))
    assert f"127.0.0.1:{port}" in line
    assert "--port" in line


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        ('model = "openai/gpt-5"', "OPENAI_API_KEY"),
        ('model = "nowhere/x"', "nowhere"),
        ('module = "not/there.py"', "not/there.py"),
    ],
)
def test_what_is_missing_is_known_before_anything_is_served(
    tmp_path: Path, sqlite_url: str, agent: str, message: str
) -> None:
    configure(tmp_path, sqlite_url, agent=agent)
    assert message in refused(tmp_path, env={"OPENAI_API_KEY": ""})


def test_a_wrong_model_in_a_users_agent_is_known_before_anything_is_served(tmp_path: Path, sqlite_url: str) -> None:
    """Others' models are built when they are used; the user's own are built, and found wrong, at the start."""
    (tmp_path / "agent.py").write_text(
        "from google.adk.agents import LlmAgent\nfrom pydantic import BaseModel\n\n"
        "class Wrong(BaseModel):\n    thing: 42\n\n"
        "root_agent = LlmAgent(name='a', model='gemini-flash-latest')\n"
    )
    configure(tmp_path, sqlite_url, agent='module = "agent.py"')
    line = refused(tmp_path)
    assert "agent.py" in line
    assert "42" in line


def test_a_store_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    configure(tmp_path, "sqlite:////not/there/lango.db")
    assert "/not/there" in refused(tmp_path)


def test_attack_5_without_keys_only_loopback_is_served(tmp_path: Path, sqlite_url: str) -> None:
    """Attack 5."""
    configure(tmp_path, sqlite_url)
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        line = refused(tmp_path, "--host", host)
        assert host in line
        if host != "192.0.2.1":
            assert "lango keys add" in line
    keyed = {"LANGO_SERVER__AUTH": "keys"}
    assert "lango keys add" in refused(tmp_path, "--host", "0.0.0.0", env=keyed)
    key_id = added(tmp_path)
    assert lango("keys", "revoke", key_id, cwd=tmp_path).returncode == 0
    assert "lango keys add" in refused(tmp_path, "--host", "0.0.0.0", env=keyed), "a revoked key is none"


def added(folder: Path, *arguments: str) -> str:
    secret = lango("keys", "add", *arguments, cwd=folder).stdout.strip()
    assert secret.startswith("lango_")
    listed = lango("keys", "list", "--json", cwd=folder).stdout
    assert secret not in listed
    return json.loads(listed.splitlines()[-1])["id"]


def test_every_origin_may_call_only_with_keys(tmp_path: Path, sqlite_url: str) -> None:
    configure(tmp_path, sqlite_url, server='allowed_origins = ["*"]')
    assert "origins" in refused(tmp_path)


def test_keys_are_made_listed_and_revoked(tmp_path: Path, sqlite_url: str) -> None:
    configure(tmp_path, sqlite_url)
    assert lango("keys", "list", cwd=tmp_path).stdout == "no keys\n"
    key_id = added(tmp_path, "--user", "alice", "--requests-per-minute", "60", "--tokens-per-day", "1000")
    [names, line] = lango("keys", "list", cwd=tmp_path).stdout.splitlines()
    assert names.split() == ["id", "user", "created", "limits"]
    assert line.startswith(f"{key_id}  alice")
    assert "60 requests a minute, 1000 tokens a day" in line
    assert lango("keys", "revoke", key_id[:5], cwd=tmp_path).stdout == f"revoked {key_id}\n"
    assert "revoked" in lango("keys", "list", cwd=tmp_path).stdout
    again = lango("keys", "revoke", key_id, cwd=tmp_path)
    assert again.returncode == 2
    assert key_id in again.stderr
    assert lango("keys", "add", "--user", "", cwd=tmp_path).returncode == 2


async def test_a_key_holds_for_the_whole_network(tmp_path: Path, sqlite_url: str) -> None:
    configure(tmp_path, sqlite_url)
    secret = lango("keys", "add", "--user", "alice", cwd=tmp_path).stdout.strip()
    with serving(tmp_path, sqlite_url, "--host", "0.0.0.0", fresh=True, server='auth = "keys"') as server:
        async with server.client() as client:
            path = f"http://127.0.0.1:{server.port}/v1/sessions"
            assert (await client.get(path)).status_code == 401
            keyed = {"Authorization": f"Bearer {secret}", "Host": "agents.example.org"}
            assert (await client.get(path, headers=keyed)).status_code == 200
        assert server.terminate() == 0


def test_adks_dev_ui_is_not_served_where_keys_are_needed(tmp_path: Path, sqlite_url: str) -> None:
    configure(tmp_path, sqlite_url, server='auth = "keys"')
    assert "sends no keys" in refused(tmp_path, "--adk-ui")
    configure(tmp_path, sqlite_url, server='auth = "keys"\nadk_ui = true')
    assert "sends no keys" in refused(tmp_path)


@pytest.mark.parametrize(("level", "is_logged"), [("info", True), ("warning", False)])
async def test_log_level_says_what_is_logged(tmp_path: Path, sqlite_url: str, level: str, is_logged: bool) -> None:
    with serving(tmp_path, sqlite_url, "--log-level", level) as server:
        async with server.client() as client:
            sent = await client.post("/v1/sessions/s/messages", json={"text": "hello"})
            assert sent.status_code in (200, 202)
            trace = (await client.get("/v1/sessions/s/trace")).json()
            assert trace["keeps_requests"], "by default, as nobody else can read them"
        server.terminate()
        assert ("turn 1 of session s accepted" in server.log.read_text()) == is_logged
