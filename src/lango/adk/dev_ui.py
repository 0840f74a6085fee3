"""ADK's own dev UI, as its package brings it."""

import importlib.util
from pathlib import Path


def dev_ui_folder() -> Path | None:
    """Return the folder of the built UI; None: this ADK comes without one."""
    spec = importlib.util.find_spec("google.adk")
    for place in (spec and spec.submodule_search_locations) or ():
        folder = Path(place) / "cli" / "browser"
        if (folder / "index.html").is_file():
            return folder
    return None
