"""The files of `deploy/`: the steps of the Containerfile, the compose file, and the chart as Helm renders it."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.e2e.project.test_wheel import ROOT, share_bytecode, uv
from tests.support.clients import packages
from tests.support.processes import TIMEOUT_S

DEPLOY = ROOT / "deploy"
CHART = {
    "": ["ConfigMap", "Deployment", "Job", "PodDisruptionBudget", "Service"],
    "autoscaling.enabled=true,ingress.enabled=true,ingress.tlsSecretName=tls,agents=/agents": [
        "ConfigMap",
        "Deployment",
        "HorizontalPodAutoscaler",
        "Ingress",
        "Job",
        "PodDisruptionBudget",
        "Service",
    ],
}


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Containerfile, in order."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Containerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found = [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]
    return [(name, rest) for name, rest in found]


@pytest.mark.long
def test_the_steps_of_the_containerfile_make_a_server_that_a_probe_finds_healthy(tmp_path: Path) -> None:
    """Run each step in a folder instead of an image; the base image and its user are not checked."""
    steps = instructions()
    stages = [number for number, (name, _) in enumerate(steps) if name == "FROM"]
    build, final = steps[: stages[1]], steps[stages[1] :]
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "uv").symlink_to(uv())
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV", "COV"))}
    env = clean | {"PATH": f"{tools}:{os.environ['PATH']}"}
    app = tmp_path / "app"
    app.mkdir()
    for name, rest in build:
        match name:
            case "ARG" | "ENV":
                env |= assignments(rest)
            case "COPY":
                *sources, _ = rest.split()
                for source in sources:
                    copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                    copy(ROOT / source, app / source)
            case "RUN" if not rest.startswith("pip install"):  # uv is here already
                fast = env | {"UV_COMPILE_BYTECODE": "0", "UV_LINK_MODE": "hardlink"}
                done = subprocess.run(rest, shell=True, cwd=app, env=fast, capture_output=True, text=True, check=False)
                assert done.returncode == 0, done.stderr
            case _:
                pass
    share_bytecode(app / ".venv")
    data = tmp_path / "data"
    data.mkdir()
    settings = [assignments(rest) for name, rest in final if name == "ENV"]
    env = clean | {name: value for each in settings for name, value in each.items() if name != "PATH"}
    env |= {"LANGO_SERVER__ALLOWED_HOSTS": '["agent.example.com"]', "LANGO_AGENT__MODEL": "openai/gpt-5-mini"}
    env |= {"OPENAI_API_KEY": "not called"}
    lango = str(app / ".venv" / "bin" / "lango")
    added = subprocess.run(
        [lango, "keys", "add", "--user", "alice"], cwd=data, env=env, capture_output=True, text=True, check=False
    )
    assert added.returncode == 0, added.stderr
    command = [lango, "serve", "--port", "0"]
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(command, cwd=data, env=env, stdout=subprocess.PIPE, stderr=log, text=True) as server,
    ):
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            assert line.startswith("listening on "), (tmp_path / "log").read_text()
            url = f"http://127.0.0.1:{line.strip().rpartition(':')[2]}"
            by_address = {"Host": "10.1.2.3:8787"}  # as a load balancer's health checks name the server
            statuses = [
                httpx.get(f"{url}{path}", headers=by_address, timeout=TIMEOUT_S).status_code
                for path in ("/healthz", "/readyz", "/v1/sessions")
            ]
            assert statuses == [200, 200, 403]
        finally:
            server.terminate()
        assert server.wait(TIMEOUT_S) == 0


def assignments(text: str) -> dict[str, str]:
    """Return the variables of an ENV or ARG instruction."""
    return {name: quoted or plain for name, quoted, plain in re.findall(r'(\w+)=(?:"([^"]*)"|(\S+))', text)}


def test_the_image_runs_as_a_user_without_rights_and_has_a_health_check() -> None:
    final = dict(instructions())  # the last of each kind
    assert final["USER"] == "10001:10001"
    assert "/healthz" in final["HEALTHCHECK"]
    assert final["CMD"] == '["serve"]'


def test_the_compose_file_and_the_chart_are_valid() -> None:
    found = packages.run_python(
        Path(packages.__file__).with_name("deploy_files.py"), packages.DEPLOY_CHECKERS, folder=str(DEPLOY)
    )
    assert found["compose"] == ["lango", "migrate", "postgres", "proxy"]
    if found["chart"] is None:
        pytest.skip("there is no Helm on PyPI for this machine: the chart was not rendered")
    assert found["chart"] == CHART
