"""Conversations in SQL: sessions, messages, state and turns, the same on SQLite and PostgreSQL."""

from lango.store.codec.records import Appended, Entry, SessionId, SessionRecord, Stored
from lango.store.store import Store
from lango.store.turns.turns import Ahead, Turn

__all__ = ["Ahead", "Appended", "Entry", "SessionId", "SessionRecord", "Store", "Stored", "Turn"]
