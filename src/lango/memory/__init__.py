"""Observational memory: an observer notes what was said, a reflector condenses the notes, the agent reads them."""

from lango.memory.observer import IsGone, MemoryModel, Observer
from lango.memory.quote import quote
from lango.memory.runtime_memory import Memory
from lango.memory.thresholds import Limits, limits_for

__all__ = ["IsGone", "Limits", "Memory", "MemoryModel", "Observer", "limits_for", "quote"]
