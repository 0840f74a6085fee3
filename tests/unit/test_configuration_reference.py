"""The reference of settings says what there is: every one, with its default, and none besides."""

import json
import re
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from lango.config import Settings

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "configuration.md"
SECTION = re.compile(r"^## `\[([\w.<>]+)\]`$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| `(\w+)` \| (.+?) \| (.+?) \|$", re.MULTILINE)


def models(path: str, annotation: Any) -> Iterator[tuple[str, type[BaseModel]]]:
    """Find the tables below a field, each with its name."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield path, annotation
        for name, field in annotation.model_fields.items():
            yield from models(f"{path}.{name}" if path else name, field.annotation)
    elif typing.get_origin(annotation) is dict:
        yield from models(f"{path}.<name>", typing.get_args(annotation)[1])
    elif isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        for part in typing.get_args(annotation):
            yield from models(path, part)


def default_of(field: FieldInfo) -> str:
    if field.is_required():
        return "needed"
    default = field.get_default(call_default_factory=True)
    return "none" if default is None else f"`{json.dumps(default)}`"


def test_every_setting_is_described_with_its_default() -> None:
    said = {
        section: {name: value for name, value, _ in ROW.findall(text)}
        for section, text in SECTION.findall(PAGE.read_text())
    }
    there = {
        path: {name: default_of(field) for name, field in model.model_fields.items()}
        for path, model in models("", Settings)
        if path
    }
    assert said == there
