"""The generated pages of the reference are current."""

import pytest

from tests.reference.pages import FOLDER, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_current(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "43")  # the pages must not depend on the terminal
    page = PAGES[name]()
    assert page == (FOLDER / name).read_text("utf-8"), f"docs/reference/{name} is not current: run `make reference`"
