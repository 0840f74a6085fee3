"""The lock file: packages come from the index, with hashes, and a new dependency is reported."""

from typing import Any

import pytest

from tests.locked import FILES, INDEX, OURS, ROOT, Packages, installed_with, problems, read_lock, read_reviewed

FILE = {"url": f"{FILES}a.whl", "hash": "sha256:00"}


def package(name: str, *needs: str, **changed: Any) -> dict[str, Any]:
    entry = {"name": name, "version": "1.0", "source": INDEX, "wheels": [FILE]} | changed
    return entry | {"dependencies": [{"name": one} for one in needs]}


def locked(*packages: dict[str, Any]) -> Packages:
    ours = package(OURS, "direct", source={"editable": "."}, wheels=[])
    ours["optional-dependencies"] = {"more": [{"name": "extra"}]}
    return {one["name"]: [one] for one in (ours, *packages)}


REVIEWED = {"direct", "deep", "extra"}
FINE = (package("direct", "deep"), package("deep"), package("extra"), package("only-for-tests"))


def test_the_lock_file_has_no_problems() -> None:
    assert problems(read_lock((ROOT / "uv.lock").read_text()), read_reviewed()) == []


def test_dependencies_of_dependencies_are_found() -> None:
    assert installed_with(locked(*FINE)) == {"direct": OURS, "extra": OURS, "deep": "direct"}
    assert problems(locked(*FINE), REVIEWED) == []


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"source": {"git": "https://example.org/x"}}, "not from the package index"),
        ({"source": {"registry": "https://example.org/simple"}}, "not from the package index"),
        ({"source": {"url": "https://example.org/x.whl"}}, "not from the package index"),
        ({"wheels": [FILE | {"url": "https://example.org/x.whl"}]}, "comes from https://example.org/x.whl"),
        ({"wheels": [{"url": FILE["url"]}]}, "has no hash"),
        ({"sdist": {"url": FILE["url"], "hash": "md5:00"}}, "has no hash"),
        ({"wheels": []}, "has no file"),
        ({"version": "2.0rc1"}, "is a pre-release"),
    ],
)
def test_a_problem_of_a_package_is_reported(changed: dict[str, Any], problem: str) -> None:
    direct, *rest = FINE
    [found] = problems(locked(direct | changed, *rest), REVIEWED)
    assert problem in found


def test_a_new_dependency_is_reported_with_the_package_that_needs_it() -> None:
    changed = package("direct", "deep", "surprise")
    [found] = problems(locked(changed, *FINE[1:], package("surprise")), REVIEWED)
    assert found.startswith("surprise (needed by direct) is new")
    [left] = problems(locked(*FINE), REVIEWED | {"gone"})
    assert left.startswith("gone is no longer needed")
