"""Credentials on the command line: `lango run`, `chat`, `inbox`, `credentials` and `doctor`."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lango.store.credentials.secret_box import KEY_VARIABLE
from tests.support.processes import run_lango
from tests.support.servers import credential_agent
from tests.support.servers.oauth_server import OAuthServer, oauth_server
from tests.support.terminal import CTRL_C, terminal

KEY = "the-key-0123456789"


@pytest.fixture(scope="module")
def oauth() -> Iterator[OAuthServer]:
    with oauth_server() as server:
        yield server


@pytest.fixture(autouse=True)
def key(oauth: OAuthServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """Set the environment, and return the key in it."""
    environment = credential_agent.environment(oauth)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return environment[KEY_VARIABLE]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    module = json.dumps(str(credential_agent.FILE))
    (tmp_path / "lango.toml").write_text(f'[agent]\nname = "obedient"\nmodule = {module}\n')
    return tmp_path


class Lango:
    """`lango` in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: str, code: int = 0, stdin: str = "", keys: str | None = None) -> str:
        env = {} if keys is None else {KEY_VARIABLE: keys}
        done = run_lango(*arguments, cwd=self.folder, env=env, stdin=stdin)
        assert done.returncode == code, done
        assert "Traceback" not in done.stderr
        assert KEY not in done.stdout + done.stderr
        return done.stdout if code == 0 else done.stderr

    def json(self, *arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self(*arguments, "--json").splitlines()]


@pytest.fixture
def lango(folder: Path) -> Lango:
    return Lango(folder)


def everything_in(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


def test_run_says_what_it_waits_for(lango: Lango, oauth: OAuthServer) -> None:
    said = lango("run", "-r", "s", "account", code=3)
    assert f"{oauth.url}/authorize?" in said
    assert "answer with /answer in `lango chat -r s`" in said
    report = run_lango("run", "-r", "t", "--output-format", "json", "key", cwd=lango.folder)
    assert json.loads(report.stdout)["status"] == "waiting"
    [waiting] = json.loads(report.stdout)["waits"]
    assert (waiting["scheme_type"], waiting["auth_url"]) == ("apiKey", "")


def test_chat_asks_for_a_credential_and_does_not_show_it(folder: Path) -> None:
    with terminal(folder, "chat", "-r", "s", columns=100) as chat:
        chat.confirm_new_session()
        chat.wait_prompt()
        chat.send("key")
        chat.wait_for("/answer asks for it, and does not show what you type")
        assert "the weather service" in chat.text
        chat.wait_prompt()
        chat.send("/answer")
        chat.wait_for("the credential (apiKey):")
        chat.type(CTRL_C)
        chat.wait_for("not answered: /answer asks again")
    with terminal(folder, "chat", "-r", "s", columns=100) as chat:
        chat.wait_for("/answer asks for it, and does not show what you type")
        chat.wait_prompt()
        chat.send("/answer")
        chat.wait_for("the credential (apiKey):")
        chat.send(KEY)
        chat.wait_for(f"it got a key of {len(KEY)}")
        assert KEY.encode() not in chat.raw
        chat.wait_prompt()
        chat.send("/answer")
        chat.wait_for("nothing is waiting for an answer")
        chat.wait_prompt()
        chat.send("password")
        chat.wait_for("the basic service")
        chat.wait_prompt()
        chat.send("/answer")
        chat.wait_for("name and password, as name:password:")
        chat.send(f"ann:{KEY}")
        chat.wait_for(f"it got basic ann and {len(KEY)}")
        assert KEY.encode() not in chat.raw
    assert KEY.encode() not in everything_in(folder)


def test_chat_takes_the_address_that_the_user_was_sent_to(folder: Path, oauth: OAuthServer) -> None:
    with terminal(folder, "chat", "-r", "s", columns=600) as chat:
        chat.confirm_new_session()
        chat.wait_prompt()
        chat.send("account")
        chat.wait_for("/answer asks for it, and does not show what you type")
        [line] = [line for line in chat.lines if line.startswith(oauth.url)]
        assert "EXPERIMENTAL" not in chat.text
        address = asyncio.run(oauth.allow(line.strip()))
        chat.wait_prompt()
        chat.send("/answer")
        chat.wait_for("the address that you were sent to:")
        chat.send("nonsense")
        chat.wait_for("open the URL of the request")
        chat.wait_prompt()
        chat.send("/answer")
        chat.wait_for(lambda: chat.shown.count("the address that you were sent to:") == 2)
        chat.send(address)
        chat.wait_for("it got alice")
        assert not [secret for secret in oauth.secrets if secret.encode() in chat.raw]
    assert not [secret for secret in oauth.secrets if secret.encode() in everything_in(folder)]


def test_chat_skips_a_request(folder: Path) -> None:
    with terminal(folder, "chat", "-r", "s", columns=100) as chat:
        chat.confirm_new_session()
        chat.wait_prompt()
        chat.send("key")
        chat.wait_for("/skip closes the request")
        chat.wait_prompt()
        chat.send("/skip")
        chat.wait_for("closed what was waiting for you")


def test_the_inbox_shows_the_address_and_takes_the_answer(lango: Lango, oauth: OAuthServer) -> None:
    lango("run", "-r", "accounts", "account", code=3)
    lango("run", "-r", "weather", "key", code=3)
    lango("run", "-r", "doors", "password", code=3)
    listed = lango("inbox")
    password, key, account = lango.json("inbox")
    asked = key["wait"]
    assert f"{account['id']}: allow the access at {account['wait']['auth_url']}\n" in listed
    assert account["wait"]["auth_url"].startswith(f"{oauth.url}/authorize?")
    assert (asked["kind"], asked["scheme_type"], asked["message"]) == ("credential", "apiKey", "the weather service")
    assert "the weather service" in listed
    assert "open the URL" in lango("inbox", "answer", account["id"], "yes", code=2)
    address = asyncio.run(oauth.allow(account["wait"]["auth_url"]))
    assert lango("inbox", "answer", account["id"], address) == "it got alice\n"
    assert lango("inbox", "answer", key["id"], "-", stdin=f"{KEY}\n") == f"it got a key of {len(KEY)}\n"
    assert lango("inbox", "answer", password["id"], "ann:secret") == "it got basic ann and 6\n"
    assert lango("inbox") == "nothing is waiting for you\n"
    assert KEY.encode() not in everything_in(lango.folder)


def give(lango: Lango, name: str, value: str) -> None:
    lango("run", "-r", name, name, code=3)
    [item] = lango.json("inbox")
    lango("inbox", "answer", item["id"], "-", stdin=f"{value}\n")


def test_credentials_are_listed_and_deleted(lango: Lango) -> None:
    assert lango("credentials", "list") == "no credentials\n"
    give(lango, "key", KEY)
    give(lango, "token", KEY)
    weather, bearer = lango.json("credentials", "list")
    assert (weather["key"], weather["kind"], weather["label"]) == ("weather", "apiKey", "the weather service")
    assert (bearer["key"], bearer["kind"], bearer["app"]) == ("bearer", "http", "obedient")
    assert "weather" in lango("credentials", "list", "--user", weather["user"])
    assert lango("credentials", "list", "--user", "ann") == "no credentials\n"
    assert "there is no credential" in lango("credentials", "delete", "nothing", code=2)
    assert "name a credential" in lango("credentials", "delete", code=2)
    assert "name a credential" in lango("credentials", "delete", "weather", "--all", code=2)
    assert "--user" in lango("credentials", "delete", "--all", code=2)
    assert lango("credentials", "delete", "weat") == "deleted weather\n"
    assert lango("credentials", "delete", "--all", "--user", "ann") == "deleted 0 credentials of ann\n"
    assert [one["key"] for one in lango.json("credentials", "list")] == ["bearer"]
    user = bearer["user"]
    assert lango("credentials", "delete", "--all", "--user", user) == f"deleted 1 credential of {user}\n"
    assert lango("credentials", "list") == "no credentials\n"
    lango("run", "-r", "token", "token", code=3)


def test_the_key_is_replaced(lango: Lango, key: str) -> None:
    give(lango, "key", KEY)
    new = lango("credentials", "key").strip()
    assert new not in (key, lango("credentials", "key").strip())
    assert "lacks the key" in lango("credentials", "rotate", code=2, keys=new)
    assert "1 credential " in lango("credentials", "rotate", keys=f"{new},{key}")
    used = f"it got a key of {len(KEY)}\n"
    assert lango("run", "-r", "other", "key", keys=new) == used
    assert "cannot be decrypted" in lango("run", "-r", "other", "key"), "the model reads it"
    assert "is not set" in lango("credentials", "rotate", code=2, keys="")


def test_doctor_says_that_users_sign_in_to_an_mcp_server(tmp_path: Path) -> None:
    (tmp_path / "lango.toml").write_text(
        '[mcp.mail]\nurl = "http://127.0.0.1:1/mcp"\n[mcp.mail.oauth]\nauthorization_url = "http://127.0.0.1:1/a"\n'
        'token_url = "http://127.0.0.1:1/t"\nclient_id = "lango"\n'
    )
    done = run_lango("doctor", "--offline", cwd=tmp_path)
    assert "mcp mail: is configured; each user signs in" in done.stdout
    done = run_lango("doctor", cwd=tmp_path)
    assert "mcp mail: is configured; each user signs in" in done.stdout
    assert "did not answer" not in done.stdout.partition("mcp mail")[2].splitlines()[0]
    done = run_lango("doctor", "--offline", cwd=tmp_path, env={KEY_VARIABLE: ""})
    assert "FAIL mcp mail: credentials are stored encrypted, and LANGO_CREDENTIAL_KEY is not set" in done.stdout
