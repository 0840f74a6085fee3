"""Observational memory: an observer notes what was said, a reflector condenses the notes, the agent reads them."""

from lango.memory.observer import MemoryModel, Observer, OwnerIsGone
from lango.memory.quote import quote
from lango.memory.runtime_memory import Memory
from lango.memory.thresholds import MemoryThresholds, thresholds_for

__all__ = ["Memory", "MemoryModel", "MemoryThresholds", "Observer", "OwnerIsGone", "quote", "thresholds_for"]
