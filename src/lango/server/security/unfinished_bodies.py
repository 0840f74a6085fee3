"""Bound the bodies that have begun to arrive: of all users together, and of each."""

from collections import Counter

from starlette.exceptions import HTTPException

_SHARES = 4
_RETRY_AFTER_S = 5


class UnfinishedBodies:
    """Counts the bytes of bodies that are not complete. A user may have a quarter of all, or one largest body."""

    def __init__(self, max_bytes: int, largest_body: int) -> None:
        self._max_bytes = max_bytes
        self._max_of_user = max(max_bytes // _SHARES, min(largest_body, max_bytes))
        self._by_user: Counter[str] = Counter()

    def add(self, user_id: str, size: int) -> None:
        """Count a piece of a body. Raise `HTTPException` if it is too much: 429 for its user, 503 for the server."""
        if self._by_user[user_id] + size > self._max_of_user:
            self._refuse(429, f"your requests that are not complete have more than {self._max_of_user} bytes")
        if self._by_user.total() + size > self._max_bytes:
            self._refuse(503, f"the requests that are not complete have more than {self._max_bytes} bytes")
        self._by_user[user_id] += size

    def release(self, user_id: str, size: int) -> None:
        """Stop counting a body that is complete, or whose request has ended."""
        self._by_user[user_id] -= size
        if not self._by_user[user_id]:
            del self._by_user[user_id]

    def _refuse(self, status: int, problem: str) -> None:
        message = f"{problem}: try again later (setting server.max_unfinished_bytes)"
        raise HTTPException(status, message, {"Connection": "close", "Retry-After": str(_RETRY_AFTER_S)})
