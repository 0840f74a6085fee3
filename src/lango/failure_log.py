"""Log the failures of users' own code, once each, with the traceback and without secrets."""

import asyncio
import logging
import traceback

from lango.errors import AgentFailed, LangoError, ToolError
from lango.printable_text import printable
from lango.redaction import redact_secrets

LOGGER = "lango.failures"
_log = logging.getLogger(LOGGER)
_LOGGED_MARK = "_lango_logged"
_MAX_CHARACTERS = 20_000
_MAX_CHAIN = 20


def log_failure(what: str, error: BaseException) -> None:
    """Log that something failed, with the traceback of its error.

    Nothing is logged for a cancellation, for an error of Lango (of the store, a provider or a limit), or if the error,
    or one that led to it, was logged before.
    """
    for one in _chain(error):
        is_ours = isinstance(one, LangoError) and not isinstance(one, AgentFailed | ToolError)
        if is_ours or isinstance(one, asyncio.CancelledError) or hasattr(one, _LOGGED_MARK):
            return
    vars(error)[_LOGGED_MARK] = True
    if not _log.isEnabledFor(logging.ERROR):
        return
    record = _log.makeRecord(_log.name, logging.ERROR, __file__, 0, "%s", (what,), None)
    # not as `exc_info`: a handler would write messages and source lines with the secrets in them, and may not be able
    # to write a lone surrogate
    record.exc_text = _clip(printable(redact_secrets("".join(traceback.format_exception(error)).rstrip())))
    _log.handle(record)


def mark_logged(error: BaseException) -> None:
    """Do not log an error that another process, or an earlier run of its turn, has logged."""
    vars(error)[_LOGGED_MARK] = True


def _chain(error: BaseException) -> list[BaseException]:
    """Return an error and those that led to it."""
    found = [error]
    while len(found) < _MAX_CHAIN and (before := found[-1].__cause__ or found[-1].__context__) is not None:
        found.append(before)
    return found


def _clip(text: str) -> str:
    half = _MAX_CHARACTERS // 2
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:half]}\n[...]\n{text[-half:]}"
