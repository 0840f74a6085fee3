"""Run the tests of the pure core on every Python that the package claims and this machine has: `make pythons`.

The whole suite runs on one Python. Here the others run what needs neither ADK nor a server, each in a small environment
of its own with the locked packages of the group `core`.
"""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
CLASSIFIER = "Programming Language :: Python :: 3."
PURE_CORE = [
    "tests/unit/config",
    "tests/unit/history",
    "tests/unit/memory",
    "tests/unit/providers/test_encoders_properties.py",
    "tests/unit/providers/test_reply_assembly.py",
    "tests/unit/providers/test_resilience.py",
    "tests/unit/providers/test_scripted_provider.py",
    "tests/unit/providers/test_stop_sequences.py",
    "tests/unit/store/test_json_text.py",
    "tests/unit/test_json_input.py",
    "tests/unit/test_messages.py",
    "tests/unit/test_schedules.py",
    "tests/unit/test_turn_events.py",
    "tests/unit/tools",
    "tests/unit/turns",
]
"""Tests of functions over messages, events, rows, settings and tools."""


def claimed_versions() -> list[str]:
    """Return the Pythons that pyproject.toml names, as "3.11"."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    return [one.rpartition(" ")[2] for one in classifiers if one.startswith(CLASSIFIER)]


def installed_pythons(uv: str) -> dict[str, str]:
    """Return the interpreters that uv finds on this machine, and those that pyenv keeps, by version, as "3.11"."""
    path = os.pathsep.join([*_pyenv_folders(), os.environ.get("PATH", "")])
    command = [uv, "python", "list", "--only-installed", "--no-python-downloads", "--output-format", "json"]
    listed = subprocess.run(command, env=os.environ | {"PATH": path}, capture_output=True, check=True)
    found: dict[str, str] = {}
    for one in json.loads(listed.stdout):
        if one["implementation"] == "cpython" and one["variant"] == "default":
            found.setdefault(f"{one['version_parts']['major']}.{one['version_parts']['minor']}", one["path"])
    return found


def _pyenv_folders() -> list[str]:
    """Return the folders of pyenv's interpreters; its commands on the path only run the version that is selected."""
    pyenv = shutil.which("pyenv")
    if pyenv is None:
        return []
    root = subprocess.run([pyenv, "root"], capture_output=True, text=True, check=True).stdout.strip()
    return [str(folder) for folder in sorted(Path(root).glob("versions/*/bin"))]


def run_core(uv: str, version: str, python: str) -> int:
    """Run the tests of the pure core on an interpreter, in its environment; return pytest's exit code."""
    command = [uv, "run", "--quiet", "--frozen", "--only-group", "core", "--python", python]
    tests = ["python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header", *PURE_CORE]
    own = {
        "UV_PROJECT_ENVIRONMENT": str(ROOT / ".tools" / f"python-{version}"),
        "PYTHONPATH": str(ROOT / "src"),
        "LANGO_EXAMPLES": "few",
    }
    return subprocess.run([*command, *tests], cwd=ROOT, env=os.environ | own).returncode


def main(arguments: Sequence[str]) -> int:
    """Run the tests on each claimed Python but this one; print those that are not here. The argument is uv."""
    [uv] = arguments
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    pythons = installed_pythons(uv)
    failed: list[str] = []
    for version in claimed_versions():
        if version == here:
            print(f"Python {version}: runs the whole suite", flush=True)
        elif version not in pythons:
            print(f"Python {version}: not installed here, skipped", flush=True)
        else:
            print(f"Python {version}: the pure core", flush=True)
            if run_core(uv, version, pythons[version]):
                failed.append(version)
    if failed:
        print(f"the pure core fails on Python {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
