"""Observational memory: an observer writes notes on old messages, a reflector condenses them, the agent reads them."""

from lango.memory.notes.note_model import MemoryModel
from lango.memory.observer import Observer
from lango.memory.quote import quote
from lango.memory.recall import Shown, recall_for
from lango.memory.runtime_memory import Memory
from lango.memory.thresholds import MemoryThresholds, thresholds_for

__all__ = ["Memory", "MemoryModel", "MemoryThresholds", "Observer", "Shown", "quote", "recall_for", "thresholds_for"]
