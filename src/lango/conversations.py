"""Conversations as a whole: find, read, name, fork, take back, export, import, delete. `runtime.sessions` in Python."""

from lango.runtime.sessions import Sessions, import_session

__all__ = ["Sessions", "import_session"]
