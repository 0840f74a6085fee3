"""A server that takes an issuer's tokens: who is let in, who is not, and whose sessions they see."""

import base64
import hashlib
import hmac
import json
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from lango.store.api_keys import seconds_until_tomorrow
from tests.support.servers.issuer import LocalIssuer, ec_key, issuing, rsa_key
from tests.support.servers.server_process import (
    TIMEOUT_S,
    Server,
    configure,
    lango,
    not_at_midnight,
    send,
    serving,
    text_of,
)


@dataclass
class Guarded:
    server: Server
    issuer: LocalIssuer
    folder: Path
    key: str
    """An API key of the user alice."""

    def client(self, secret: str) -> httpx.AsyncClient:
        return self.server.client(Authorization=f"Bearer {secret}")

    async def status(self, token: str) -> tuple[int, str]:
        async with self.client(token) as client:
            answer = await client.get("/v1/sessions")
        return answer.status_code, answer.json().get("error", {}).get("message", "")


def server_settings(issuer: str, more: str = "") -> str:
    return f'auth = "oidc"\n{more}\n[server.oidc]\nissuer = "{issuer}"\naudience = ["lango"]'


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("oidc")
    url = f"sqlite:///{folder}/lango.db"
    configure(folder, url)
    key = lango("keys", "add", "--user", "alice", cwd=folder).stdout.strip()
    # beyond this machine, with no key needed for it: tokens protect the server
    with (
        issuing(rsa_key("r1"), ec_key("e1")) as issuer,
        serving(folder, url, "--host", "0.0.0.0", server=server_settings(issuer.url)) as running,
    ):
        running.url = running.url.replace("0.0.0.0", "127.0.0.1")
        yield Guarded(running, issuer, folder, key)


def encoded(part: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def forged_without_signature(issuer: LocalIssuer, algorithm: str = "none") -> str:
    return f"{encoded({'alg': algorithm, 'kid': 'r1', 'typ': 'JWT'})}.{encoded(issuer.claims('alice'))}."


def forged_with_the_public_key(issuer: LocalIssuer) -> str:
    """The oldest trick: the public key, which every client has, taken for the secret of an HMAC."""
    signed = f"{encoded({'alg': 'HS256', 'kid': 'r1', 'typ': 'JWT'})}.{encoded(issuer.claims('alice'))}"
    digest = hmac.new(issuer.keys[0].public_pem, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def forged_payload(issuer: LocalIssuer) -> str:
    head, _, signature = issuer.token("mallory").split(".")
    return f"{head}.{encoded(issuer.claims('alice'))}.{signature}"


def forged_by_another_kind_of_key(issuer: LocalIssuer) -> str:
    """Signed with EC, under the name of the RSA key."""
    other = ec_key("r1")
    return issuer.token("alice", other)


ATTACKS: dict[str, tuple[Callable[[LocalIssuer], str], str]] = {
    "no algorithm": (forged_without_signature, "algorithm"),
    "no algorithm, spelt otherwise": (lambda issuer: forged_without_signature(issuer, "nOnE"), "algorithm"),
    "no signature": (lambda issuer: forged_without_signature(issuer, "RS256"), "cannot be verified"),
    "the public key as a secret": (forged_with_the_public_key, "algorithm"),
    "another payload": (forged_payload, "cannot be verified"),
    "another kind of key": (forged_by_another_kind_of_key, "not one of the issuer's"),
    "a key of one's own": (lambda issuer: issuer.token("alice", rsa_key("r1")), "cannot be verified"),
    "another audience": (lambda issuer: issuer.token("alice", aud="other"), "audience"),
    "another issuer": (lambda issuer: issuer.token("alice", iss="https://evil.example"), "issuer"),
    "expired": (lambda issuer: issuer.token("alice", exp=1_000_000), "expired"),
    "not yet valid": (lambda issuer: issuer.token("alice", nbf=9_999_999_999), "not valid yet"),
    "an unknown key": (lambda issuer: issuer.token("alice", rsa_key("nobodys")), "not one of the issuer's"),
    "huge": (lambda issuer: issuer.token("alice", padding="x" * 30_000), "too large"),
    "no token at all": (lambda _: "a.b.c", "not a JSON Web Token"),
    "deep": (lambda _: f"{base64.urlsafe_b64encode(b'[' * 9_000).decode()}.b.c", "not a JSON Web Token"),
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_a_forged_token_opens_nothing(guarded: Guarded, attack: str) -> None:
    make, why = ATTACKS[attack]
    status, message = await guarded.status(make(guarded.issuer))
    assert status == 401
    assert why in message


async def test_a_token_and_a_key_are_let_in_side_by_side(guarded: Guarded) -> None:
    session = uuid.uuid4().hex
    for secret in (guarded.issuer.token("bob"), guarded.issuer.token("bob", guarded.issuer.keys[1]), guarded.key):
        async with guarded.client(secret) as client:
            await client.post("/v1/sessions", json={"id": session})
            assert text_of(await send(client, session, "hello")) == "hello"
    async with guarded.server.client() as client:
        unauthenticated = await client.get("/v1/sessions")
    assert unauthenticated.status_code == 401
    assert "API key or token" in unauthenticated.json()["error"]["message"]


async def test_a_token_of_one_user_shows_nothing_of_another(guarded: Guarded) -> None:
    session = uuid.uuid4().hex
    async with (
        guarded.client(guarded.issuer.token("carol")) as carol,
        guarded.client(guarded.issuer.token("dan")) as dan,
    ):
        await carol.post("/v1/sessions", json={"id": session})
        await send(carol, session, "mine")
        for method, path, body in (
            ("GET", "", None),
            ("GET", "/messages", None),
            ("GET", "/stream", None),
            ("DELETE", "", None),
        ):
            theirs = await dan.request(method, f"/v1/sessions/{session}{path}", json=body)
            assert theirs.status_code == 404
        assert session not in (await dan.get("/v1/sessions")).text
        assert session in (await carol.get("/v1/sessions")).text


async def test_a_token_is_never_taken_for_the_user_of_a_key(guarded: Guarded) -> None:
    session = uuid.uuid4().hex
    async with guarded.client(guarded.key) as alice, guarded.client(guarded.issuer.token("alice")) as other:
        await alice.post("/v1/sessions", json={"id": session})
        assert (await other.get(f"/v1/sessions/{session}")).status_code == 404
        assert (await other.get(f"/apps/obedient/users/alice/sessions/{session}")).status_code == 404
        mine = await other.post("/apps/obedient/users/oidc:alice/sessions", json={})
        assert mine.json()["userId"] == "oidc:alice"


async def test_a_websocket_takes_a_token(guarded: Guarded) -> None:
    url = f"ws://127.0.0.1:{guarded.server.port}/v1/ws"
    offered = [Subprotocol("lango"), Subprotocol(f"bearer.{guarded.issuer.token('erin')}")]
    async with connect(url, subprotocols=offered) as socket_:
        await socket_.send(json.dumps({"type": "cancel", "session": "nothing"}))
        assert json.loads(await socket_.recv())["error"] == "SessionNotFound"
    expired = [Subprotocol("lango"), Subprotocol(f"bearer.{guarded.issuer.token('erin', exp=1_000_000)}")]
    with pytest.raises(InvalidStatus):
        await connect(url, subprotocols=expired)


async def test_a_rotated_key_is_found(guarded: Guarded) -> None:
    guarded.issuer.keys.append(new := rsa_key("rotated"))
    assert (await guarded.status(guarded.issuer.token("frank", new)))[0] == 200


async def test_a_token_is_stored_and_logged_nowhere(guarded: Guarded) -> None:
    token = guarded.issuer.token("grace")
    async with guarded.client(token) as client:
        await client.post("/v1/sessions", json={"id": "of-grace"})
        await send(client, "of-grace", "hello")
    await guarded.status(token + "x")
    signature = token.rpartition(".")[2][:40]
    assert signature not in guarded.server.log.read_text()
    for file in guarded.folder.glob("lango.db*"):
        assert signature.encode() not in file.read_bytes()


async def test_limits_hold_for_a_user_whatever_token_they_bring(tmp_path: Path, sqlite_url: str) -> None:
    await not_at_midnight()
    configure(tmp_path, sqlite_url)
    key = lango("keys", "add", "--user", "oidc:alice", cwd=tmp_path).stdout.strip()
    with issuing(rsa_key("r1"), ec_key("e1")) as issuer:
        limited = server_settings(issuer.url) + "\nrequests_per_minute = 20\ntokens_per_day = 30"
        with serving(tmp_path, sqlite_url, server=limited) as server:

            async def response_to(token: str, *, message: bool = False) -> tuple[int, str, int]:
                async with server.client(Authorization=f"Bearer {token}") as client:
                    path = "/v1/sessions/s/messages" if message else "/v1/sessions"
                    answer = await (client.post(path, json={"text": "hi"}) if message else client.get(path))
                error_type = answer.json()["error"]["type"] if answer.status_code != 200 else ""
                return answer.status_code, error_type, int(answer.headers.get("Retry-After", 0))

            tokens = [issuer.token("alice"), issuer.token("alice", issuer.keys[1])]
            async with server.client(Authorization=f"Bearer {tokens[0]}") as client:
                await client.post("/v1/sessions", json={"id": "s"})
                for _ in range(2):  # 15 tokens each
                    assert text_of(await send(client, "s", "hello")) == "hello"
            answers = [await response_to(token, message=True) for token in tokens]
            while answers[-1][0] == 200:  # the tokens of a turn are counted after its end
                answers.append(await response_to(tokens[0], message=True))
            assert answers[-1][1] == "TokensUsedUp"
            assert (answers[-1][2] - seconds_until_tomorrow(time.time())) % 86_400 < TIMEOUT_S, "until tomorrow"
            assert (await response_to(tokens[1], message=True))[1] == "TokensUsedUp"
            used = 3 + len(answers) + 1
            assert [(await response_to(tokens[at % 2]))[0] for at in range(20 - used)] == [200] * (20 - used)
            status, kind, wait_s = await response_to(tokens[1])
            assert (status, kind) == (429, "RateLimited")
            assert 0 < wait_s <= 60
            assert (await response_to(issuer.token("bob")))[0] == 200, "they are each user's own"
            assert (await response_to(key, message=True))[0] == 200, "a key has its own"


# -- settings ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def nowhere() -> Iterator[str]:
    """An address of this machine where no process listens, and none can."""
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{place.getsockname()[1]}"


async def test_keys_work_while_the_issuer_is_away(tmp_path: Path, sqlite_url: str, nowhere: str) -> None:
    configure(tmp_path, sqlite_url)
    key = lango("keys", "add", "--user", "alice", cwd=tmp_path).stdout.strip()
    with serving(tmp_path, sqlite_url, server=server_settings(nowhere)) as server:
        token = LocalIssuer(nowhere, [rsa_key("r1")]).token("alice")
        async with server.client(Authorization=f"Bearer {token}") as client:
            answer = await client.get("/v1/sessions")
            assert (answer.status_code, answer.json()["error"]["type"]) == (503, "IssuerUnavailable")
            assert "does not answer" in answer.json()["error"]["message"]
            assert int(answer.headers["Retry-After"]) > 0
        async with server.client(Authorization=f"Bearer {key}") as client:
            assert (await client.get("/v1/sessions")).status_code == 200
            assert (await client.get("/readyz")).status_code == 200


@pytest.mark.parametrize(
    ("server", "why"),
    [
        ('auth = "oidc"', "needs [server.oidc]"),
        ('[server.oidc]\nissuer = "https://i.example"\naudience = ["a"]', 'only with server.auth = "oidc"'),
        (server_settings("http://issuer.example"), "must be https"),
        ('auth = "oidc"\n[server.oidc]\nissuer = "https://i.example"', "server.oidc.audience"),
        (server_settings("https://i.example") + "\ntokens_per_day = 0", "server.oidc.tokens_per_day"),
    ],
)
def test_settings_that_do_not_guard_are_refused(tmp_path: Path, sqlite_url: str, server: str, why: str) -> None:
    configure(tmp_path, sqlite_url, server=server)
    run = lango("serve", "--port", "0", cwd=tmp_path)
    assert run.returncode == 2
    assert why in run.stderr
    assert "Traceback" not in run.stderr


def test_the_doctor_asks_the_issuer(tmp_path: Path, sqlite_url: str, nowhere: str) -> None:
    with issuing(rsa_key("r1"), ec_key("e1")) as issuer:
        configure(tmp_path, sqlite_url, server=server_settings(issuer.url))
        assert f"tokens: {issuer.url} answers with 2 keys" in lango("doctor", cwd=tmp_path).stdout
        assert "not contacted" in lango("doctor", "--offline", cwd=tmp_path).stdout
        assert len(issuer.requested_paths) == 2
    configure(tmp_path, sqlite_url, server=server_settings(nowhere))
    run = lango("doctor", cwd=tmp_path)
    assert run.returncode == 1
    assert "FAIL tokens: " in run.stdout


def test_a_missing_package_is_a_sentence(tmp_path: Path, sqlite_url: str) -> None:
    configure(tmp_path, sqlite_url, server=server_settings("https://issuer.example"))
    code = "import sys; sys.modules['jwt'] = None; from lango.cli.main import main; main()"
    run = subprocess.run(
        [sys.executable, "-c", code, "serve", "--port", "0"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 2
    assert 'pip install "lango-adk[oidc]"' in run.stderr
    assert "Traceback" not in run.stderr
