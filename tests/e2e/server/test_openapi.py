"""The OpenAPI document says what the server does: schemathesis sends it what the document allows and forbids.

Every operation of the document is tested, so a new route is included by itself. For a longer search:
`st --config-file tests/e2e/server/schemathesis.toml run URL/openapi.json --max-time 300`.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.processes import BIN
from tests.support.servers.server_process import TIMEOUT_S, Server, serving

ROOT = Path(__file__).parents[3]
CONFIG = Path(__file__).with_name("schemathesis.toml")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("openapi")
    with serving(folder, f"sqlite:///{folder}/lango.db") as running:
        yield running


@pytest.mark.long
def test_schemathesis_finds_nothing(server: Server, tmp_path: Path) -> None:
    options = ("--max-examples", "2", "--generation-deterministic", "--no-color")
    command = (str(BIN / "st"), "--config-file", str(CONFIG), "run", f"{server.url}/openapi.json", *options)
    # no more than it needs: each request looks through all variables for a proxy
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=15 * TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document = httpx.get(f"{server.url}/openapi.json", timeout=TIMEOUT_S).json()
    operations = sum(len(methods) for methods in document["paths"].values())
    assert re.search(rf"Tested: {operations}\n", done.stdout), done.stdout
    assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/sessions/s", "DELETE, GET, PATCH"),
        ("DELETE", "/v1/sessions", "GET, POST"),
        ("GET", "/v1/sessions/s/waits/c", "DELETE, POST"),
        ("POST", "/v1/sessions/s/artifacts/a", "DELETE, GET, PUT"),
        ("TRACE", "/apps/obedient/users/u/sessions/s", "DELETE, GET, PATCH, POST"),
        ("PUT", "/v1/chat/completions", "POST"),
        ("POST", "/healthz", "GET"),
    ],
)
def test_a_method_that_is_not_allowed_is_answered_with_the_allowed_ones(
    server: Server, method: str, path: str, allowed: str
) -> None:
    answer = httpx.request(method, server.url + path, timeout=TIMEOUT_S)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
