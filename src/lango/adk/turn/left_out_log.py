"""Log what requests leave out of the history: in a runtime once per session, with the limit and its setting."""

import logging

from lango.history import Limit, WindowRules, describe_left_out, describe_limit

_log = logging.getLogger("lango.history")
_MAX_KNOWN = 10_000


def warn_left_out(left_out: int, in_all: int, clipped_tokens: int = 0) -> None:
    """Log what a request outside of a runtime leaves out."""
    _log.warning("%s", describe_left_out(left_out, in_all, clipped_tokens))


class LeftOutLog:
    """Logs once per session that its requests leave messages out."""

    def __init__(self, rules: WindowRules) -> None:
        self.rules = rules
        """The limits of a load, which apply to a model of the user's own."""
        self._known: dict[tuple[str, bool], None] = {}

    def note(
        self,
        session_id: str,
        left_out: int,
        in_all: int,
        limit: Limit,
        rules: WindowRules,
        clipped_tokens: int = 0,
    ) -> None:
        """Log what a request of a session leaves out, unless that is logged already."""
        key = session_id, bool(left_out)
        if key in self._known:
            return
        self._known[key] = None
        if len(self._known) > _MAX_KNOWN:
            del self._known[next(iter(self._known))]
        why = describe_limit(limit if left_out else "budget", rules)
        _log.warning("session %s: %s: %s", session_id, describe_left_out(left_out, in_all, clipped_tokens), why)
