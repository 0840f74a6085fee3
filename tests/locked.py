"""Check `uv.lock` without a network: the origin and hashes of all packages, and that every dependency was reviewed.

`python -m tests.locked` prints the problems, as a part of `make check`. The lock file does not hold known
vulnerabilities: `make audit` queries them, over the network.
"""

import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.version import Version

ROOT = Path(__file__).parents[1]
REVIEWED = Path(__file__).with_name("dependencies.txt")
OURS = "lango-adk"
INDEX = {"registry": "https://pypi.org/simple"}
FILES = "https://files.pythonhosted.org/"
PRE_RELEASES = frozenset({"opentelemetry-semantic-conventions"})
"""Packages that may be locked at a pre-release: OpenTelemetry has no other versions of this one."""

Packages = Mapping[str, list[dict[str, Any]]]


def read_lock(text: str) -> Packages:
    """Return the packages of a lock file by name; a package may have several versions."""
    found: dict[str, list[dict[str, Any]]] = {}
    for package in tomllib.loads(text)["package"]:
        found.setdefault(package["name"], []).append(package)
    return found


def read_reviewed() -> set[str]:
    """Return the names of the reviewed packages that users install."""
    lines = (line.partition("#")[0].strip() for line in REVIEWED.read_text().splitlines())
    return {line for line in lines if line}


def installed_with(packages: Packages, root: str = OURS) -> dict[str, str]:
    """Return the dependencies of a package and all its extras, each with the package that needs it."""
    needed_by = {root: ""}
    todo = [root]
    while todo:
        name = todo.pop()
        for package in packages[name]:
            for needed in _needs(package):
                if needed not in needed_by:
                    needed_by[needed] = name
                    todo.append(needed)
    del needed_by[root]
    return needed_by


def _needs(package: Mapping[str, Any]) -> Iterator[str]:
    for one in package.get("dependencies", ()):
        yield one["name"]
    for extra in package.get("optional-dependencies", {}).values():
        for one in extra:
            yield one["name"]


def problems(packages: Packages, reviewed: set[str]) -> list[str]:
    """Return the problems of a lock file, one sentence each."""
    found = [
        problem
        for name, versions in packages.items()
        if name != OURS
        for package in versions
        for problem in _problems_of(package)
    ]
    installed = installed_with(packages)
    for name in sorted(installed.keys() - reviewed):
        found.append(f"{name} (needed by {installed[name]}) is new: review it, then add it to {REVIEWED.name}")
    found += [f"{name} is no longer needed: remove it from {REVIEWED.name}" for name in reviewed - installed.keys()]
    return found


def _problems_of(package: Mapping[str, Any]) -> Iterator[str]:
    name = f"{package['name']} {package['version']}"
    if package["source"] != INDEX:
        yield f"{name} comes from {package['source']}, not from the package index"
    files = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else ())]
    if not files:
        yield f"{name} has no file"
    for file in files:
        if not file.get("url", "").startswith(FILES):
            yield f"{name}: a file comes from {file.get('url')}"
        if not file.get("hash", "").startswith("sha256:"):
            yield f"{name}: {file.get('url')} has no hash"
    if Version(package["version"]).is_prerelease and package["name"] not in PRE_RELEASES:
        yield f"{name} is a pre-release"


def main() -> int:
    """Print what is wrong with the project's lock file."""
    found = problems(read_lock((ROOT / "uv.lock").read_text()), read_reviewed())
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
