"""Convert plain values to typed ones, in any thread.

msgspec prepares a type when it is first used, and shares the preparation with other threads before it is complete: two
threads that convert to the same new type at once crash the process (msgspec 0.22). So a type is prepared by one thread
while the others wait.
"""

from threading import Lock
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")

_prepared: set[Any] = set()
_preparing = Lock()


@overload
def convert(value: Any, kind: type[T]) -> T: ...
@overload
def convert(value: Any, kind: Any) -> Any: ...
def convert(value: Any, kind: Any) -> Any:
    """Return a plain value as one of a type. Raise msgspec's `ValidationError` if it does not fit the type."""
    if kind not in _prepared:
        with _preparing:
            msgspec.json.Decoder(kind)
            _prepared.add(kind)
    return msgspec.convert(value, kind)  # noqa: TID251 - the only call
