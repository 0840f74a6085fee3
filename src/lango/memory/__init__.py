"""Observational memory: an observer writes notes on old messages, a reflector condenses them, the agent reads them."""

from lango.memory.notes.note_format import MemoryModel
from lango.memory.observer import Observer
from lango.memory.quote import quote
from lango.memory.recall.search import Sought, search_memory
from lango.memory.recall.session_recall import Shown, recall_for
from lango.memory.runtime_memory import Memory
from lango.memory.thresholds import MemoryThresholds, thresholds_for

__all__ = [
    "Memory",
    "MemoryModel",
    "MemoryThresholds",
    "Observer",
    "Shown",
    "Sought",
    "quote",
    "recall_for",
    "search_memory",
    "thresholds_for",
]
