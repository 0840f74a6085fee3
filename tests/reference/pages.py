"""The pages of docs/reference, each generated from the code: `make reference`. A test checks that they are current."""

from collections.abc import Callable, Mapping
from pathlib import Path

from tests.reference import clients, commands, configuration, errors, events, http, python

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
PAGES: Mapping[str, Callable[[], str]] = {
    "clients.md": clients.page,
    "commands.md": commands.page,
    "configuration.md": configuration.page,
    "errors.md": errors.page,
    "events.md": events.page,
    "http.md": http.page,
    "python.md": python.page,
}
