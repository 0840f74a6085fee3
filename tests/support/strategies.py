"""Any event that can be built from ADK's own models, by walking their annotations."""

import enum
import types as pytypes
import typing
from datetime import UTC, date, datetime
from functools import cache
from typing import Any, Literal, get_args, get_origin

from google.adk.auth.auth_tool import AuthConfig
from google.adk.events import Event
from hypothesis import strategies as st
from pydantic import BaseModel

from tests.support.json_strategies import floats, json_values, kept_values, text


def value_of(annotation: Any, depth: int) -> st.SearchStrategy[Any]:
    """Build any value that a field of this type may have."""
    origin = get_origin(annotation)
    if annotation is Any or annotation is object:
        return kept_values
    if origin is typing.Annotated:
        return value_of(get_args(annotation)[0], depth)
    if origin in (typing.Union, pytypes.UnionType):
        return st.one_of([value_of(arg, depth) for arg in get_args(annotation)])
    if origin is Literal:
        return st.sampled_from(get_args(annotation))
    if origin is list:
        return st.lists(value_of(get_args(annotation)[0], depth + 1), max_size=3)
    if origin is set:
        return st.sets(value_of(get_args(annotation)[0], depth + 1), max_size=3)
    if origin is dict:
        keys, values = get_args(annotation)
        return st.dictionaries(value_of(keys, depth + 1), value_of(values, depth + 1), max_size=3)
    return _simple(annotation, depth)


def _simple(annotation: Any, depth: int) -> st.SearchStrategy[Any]:
    known: dict[Any, st.SearchStrategy[Any]] = {
        type(None): st.none(),
        str: text,
        bytes: st.binary(max_size=20),
        bool: st.booleans(),
        int: st.integers(-(2**63), 2**63 - 1),
        float: floats,
        datetime: st.datetimes(timezones=st.just(UTC)),
        date: st.dates(),
        dict: st.dictionaries(text, json_values, max_size=3),
        list: st.lists(json_values, max_size=3),
    }
    if annotation in known:
        return known[annotation]
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return st.sampled_from(list(annotation))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return st.none() if depth > 6 else model(annotation, depth + 1)
    return st.none()


@cache
def model(cls: type[BaseModel], depth: int = 0) -> st.SearchStrategy[Any]:
    """Build any instance of a model: a few of its fields set, each to anything its type allows."""
    fields = {name: value_of(info.annotation, depth) for name, info in cls.model_fields.items()}
    if cls is Event:
        fields["partial"] = st.none() | st.just(value=False)  # a partial event is not stored
    required = {name for name, info in cls.model_fields.items() if info.is_required()}

    @st.composite
    def build(draw: st.DrawFn) -> Any:
        chosen = draw(st.sets(st.sampled_from(sorted(fields)), max_size=5)) if fields else set[str]()
        if cls is Event and draw(st.integers(0, 3)):
            chosen |= {"content"}
        try:
            return cls(**{name: draw(fields[name]) for name in sorted(chosen | required)})
        except (ValueError, TypeError):
            # a validator of the model rejects it
            return draw(st.nothing())

    return build()


events = model(Event)
auth_configs = model(AuthConfig)
