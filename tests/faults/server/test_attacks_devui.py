"""Attack 25: ADK's dev UI and REST: files of the machine, other users' sessions, and what would write or run."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.dependencies.models import Dependant
from starlette.routing import Route

from lango import Settings
from lango.server.app import create_app
from lango.server.security.auth import AuthenticatedRoute, current_caller
from lango.store import Store
from tests.agents.parts import add_api_key
from tests.support.servers.server_process import TIMEOUT_S, Server, send, serving

STATIC = {"/dev-ui", "/dev-ui/assets/config/runtime-config.json", "/dev-ui/config", "/dev-ui/{path:path}"}
PAGE = {"/", "/page/{name:path}"}
SERVER = {"/healthz", "/readyz", "/health", "/openapi.json", "/config/telemetry"}
CARDS = {"/.well-known/agent-card.json", "/a2a/{agent}/.well-known/agent-card.json"}
TRIGGERS = {"/v1/triggers/{name}", "/v1/triggers/{name}/{secret}"}
"""They have secrets of their own."""
OPEN = STATIC | PAGE | SERVER | CARDS | TRIGGERS | {"/v1/oauth/callback"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("devui")
    with serving(folder, f"sqlite:///{folder}/lango.db", server="adk_ui = true") as running:
        yield running


def raw(server: Server, request: str) -> tuple[int, bytes]:
    """Send a path as it is: clients would tidy it up."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT_S) as opened:
        opened.sendall(f"{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while more := opened.recv(65536):
            answer += more
    return int(answer.split()[1]), answer


@pytest.mark.parametrize(
    "path",
    [
        "../../../../../../../etc/passwd",
        "..%2f..%2f..%2f..%2fetc%2fpasswd",
        "%2e%2e/%2e%2e/cli.py",
        "../cli.py",
        "/etc/passwd",
        "//etc/passwd",
        "%2fetc%2fpasswd",
        "file:///etc/passwd",
        "..\\..\\etc\\passwd",
        "assets/../../cli.py",
        "index.html%00.js",
        "%00",
        "a" * 5_000,
        "%ed%a0%80",
    ],
)
def test_attack_25_no_file_but_the_uis_own_is_served(server: Server, path: str) -> None:
    status, answer = raw(server, f"GET /dev-ui/{path}")
    assert status in (400, 404), answer[:200]
    assert b"root:" not in answer
    assert b"import " not in answer


def test_attack_25_the_ui_does_not_reveal_which_files_exist(server: Server, tmp_path: Path) -> None:
    (tmp_path / "there.css").write_text("x")
    answers = [raw(server, f"GET /dev-ui/{tmp_path}/{name}.css") for name in ("there", "nowhere")]
    assert answers[0][0] == answers[1][0]
    assert answers[0][1].endswith(b"\r\n\r\n")


def depends_on_caller(dependant: Dependant) -> bool:
    return dependant.call is current_caller or any(map(depends_on_caller, dependant.dependencies))


def test_attack_25_every_route_knows_its_caller_or_is_open_on_purpose() -> None:
    app = create_app(Settings.model_validate({"server": {"adk_ui": True}}))
    routes = [route for route in app.routes if isinstance(route, Route)]
    assert {route.path for route in routes} >= OPEN, "all of them are checked"
    unknown = {
        route.path
        for route in routes
        if not (isinstance(route, AuthenticatedRoute) and depends_on_caller(route.dependant))
    }
    assert unknown == OPEN


WRITES = [
    ("POST", "/dev/apps/lango/eval-sets/../../x"),
    ("POST", "/dev/apps/lango/builder/save"),
    ("PUT", "/dev/apps/lango/eval-sets/x/evals/..%2f..%2fx"),
    ("DELETE", "/dev/apps/lango/eval-sets/x"),
    ("POST", "/apps/lango/eval_sets/x/run_eval"),
    ("POST", "/dev/apps/lango/tests/run"),
    ("POST", "/dev/apps/lango/deploy"),
    ("GET", "/dev/apps/..%2f..%2fetc/build_graph"),
    ("GET", "/dev/apps/lango/builder?file_path=../../../etc/passwd"),
    ("GET", "/apps/lango/users/user/sessions/s/artifacts/..%2f..%2f..%2fetc%2fpasswd"),
    ("GET", "/apps/lango/users/user/sessions/s/artifacts/x/versions/0"),
    ("POST", "/apps/lango/users/user/sessions/s/artifacts"),
    ("GET", "/debug/trace/x"),
    ("GET", "/apps/../../lango.toml/users/user/sessions"),
]


@pytest.mark.parametrize(("method", "path"), WRITES)
def test_attack_25_what_would_write_files_or_run_code_is_not_here(server: Server, method: str, path: str) -> None:
    folder = server.log.parent
    before = sorted(file.name for file in folder.iterdir())
    status, answer = raw(server, f"{method} {path}")
    assert status in (400, 404, 405, 501), answer[:300]
    assert b"root:" not in answer
    assert sorted(file.name for file in folder.iterdir()) == before


async def test_attack_25_with_keys_no_user_is_reached_by_adks_rest_but_ones_own(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lango.db"
    async with Store(url) as store:
        alice, bob = [(await add_api_key(store, user))[1] for user in ("alice", "bob")]
    with serving(tmp_path, url, server='auth = "keys"') as server:
        async with (
            server.client(Authorization=f"Bearer {alice}") as hers,
            server.client(Authorization=f"Bearer {bob}") as his,
        ):
            app = (await hers.get("/list-apps")).json()[0]
            made = await hers.post("/v1/sessions", json={"id": "s"})
            assert made.status_code == 201
            assert (await send(hers, "s", "the canary"))[-1].type == "done"
            base = f"/apps/{app}/users"
            for user in ("alice", "Alice", "bob%2f..%2falice", "*", "%25", "alice%20", "alice%00"):
                for method, path in (
                    ("GET", f"{base}/{user}/sessions"),
                    ("GET", f"{base}/{user}/sessions/s"),
                    ("DELETE", f"{base}/{user}/sessions/s"),
                    ("GET", f"{base}/{user}/sessions/s/artifacts"),
                ):
                    answer = await his.request(method, path)
                    assert answer.status_code in (400, 404), (path, answer.text)
                    assert "canary" not in answer.text
            for user in ("alice", "bob"):
                body = {"appName": app, "userId": user, "sessionId": "s", "newMessage": {"parts": [{"text": "hi"}]}}
                assert (await his.post("/run", json=body)).status_code == 404
            read = await hers.get(f"{base}/alice/sessions/s")
            assert "the canary" in read.text
