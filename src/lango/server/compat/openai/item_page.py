"""Return lists page by page, as OpenAI's SDKs read them."""

from collections.abc import Sequence
from typing import Any, Literal


def item_page(
    items: Sequence[dict[str, Any]], after: str | None, limit: int, order: Literal["asc", "desc"]
) -> dict[str, Any]:
    """Return the page of a list, the oldest item first, that follows the item `after` in the wanted order."""
    ordered = items if order == "asc" else items[::-1]
    start = next((place for place, item in enumerate(ordered, 1) if item["id"] == after), 0)
    page = ordered[start : start + limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": start + limit < len(ordered),
    }
