"""Conversations as a whole: find, read, name, fork, take back, export, import, delete. `runtime.sessions` in Python."""

from lango.runtime.session_transfer import import_session
from lango.runtime.sessions import Sessions

__all__ = ["Sessions", "import_session"]
