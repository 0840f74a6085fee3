"""Copy and edit pydantic models without validating them again: the only module that touches their internals.

A window holds hundreds of events, and each turn loads them again. They were validated when they were stored: to do it
again takes many times longer than the rest of the load. Pydantic's access to private attributes is slow on each append.
`lango.adk.events.events_to_rows` reads `__dict__` for the same reason.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel

T = TypeVar("T", bound=BaseModel)


@cache
def blank_model(kind: type[T]) -> T:
    """Return the shared instance of a model class without required fields, made when it is first used."""
    return kind()


def copy_with(template: T, fields: Mapping[str, Any]) -> T:
    """Return a copy of a model with other values in some of its fields, as `model_copy(update=...)` does.

    Only for our own templates: they have no extra fields, and no mutable value that copies must not share.
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


def private_value(model: BaseModel, name: str) -> Any:
    """Return a private attribute of a model; None if its class has none of that name."""
    private = model.__pydantic_private__
    return private.get(name) if private else None


def set_private(model: BaseModel, name: str, value: Any) -> None:
    """Set a private attribute of a model, if its class has one of that name."""
    private = model.__pydantic_private__
    if private and name in private:
        private[name] = value


def set_unvalidated(model: BaseModel, name: str, value: Any) -> None:
    """Set a field of a model without validating the value."""
    vars(model)[name] = value
