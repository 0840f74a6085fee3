"""What a model thought, as the store keeps it."""

from typing import Any, cast

from lango.store import Stored


def stored_thoughts(stored: Stored) -> str:
    """Return what the model thought before a stored message; nothing where its provider does not tell."""
    layout: Any = (stored.extra or {}).get("parts") or ()
    parts = [cast("dict[str, Any]", item) for item in layout if isinstance(item, dict)]
    return "".join(part["text"] for part in parts if part.get("thought") is True and isinstance(part.get("text"), str))
