"""Conversations in SQL: sessions, messages, state and turns, the same on SQLite and PostgreSQL."""

from lango.store.codec.records import AppendResult, NewEvent
from lango.store.store import Store
from lango.store.turns.turns import OpenTurn, Turn

__all__ = ["AppendResult", "NewEvent", "OpenTurn", "Store", "Turn"]
