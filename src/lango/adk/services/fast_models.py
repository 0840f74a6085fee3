"""Copies of pydantic models, made fast: a window holds hundreds of events, and each turn makes them anew."""

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel

T = TypeVar("T", bound=BaseModel)


@cache
def blank_model(kind: type[T]) -> T:
    """Return the template of a kind that needs no fields. Its first use builds the model, so none is made before."""
    return kind()


def copy_with(template: T, fields: Mapping[str, Any]) -> T:
    """Return a copy of a model with other values in some of its fields, as `model_copy(update=...)` does.

    For templates of our own alone: they hold nothing beside their fields, and no value that a copy must not share.
    """
    kind = type(template)
    made = kind.__new__(kind)
    set_it = object.__setattr__
    set_it(made, "__dict__", {**template.__dict__, **fields})
    set_it(made, "__pydantic_fields_set__", template.__pydantic_fields_set__ | fields.keys())
    set_it(made, "__pydantic_extra__", None)
    private = template.__pydantic_private__
    set_it(made, "__pydantic_private__", dict(private) if private is not None else None)
    return made
