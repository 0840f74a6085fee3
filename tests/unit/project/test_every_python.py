"""The pure core runs on the other Pythons that the package claims."""

from tests.every_python import PURE_CORE, ROOT, claimed_versions


def test_the_claimed_versions_are_read_from_the_project() -> None:
    assert claimed_versions()[:3] == ["3.11", "3.12", "3.13"]


def test_the_tests_of_the_pure_core_are_there() -> None:
    assert [path for path in PURE_CORE if not (ROOT / path).exists()] == []
