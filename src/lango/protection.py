"""What the tools of an agent must never touch: the store, the configuration, and the agent's own code."""

from pathlib import Path

from lango.config import Settings
from lango.errors import ConfigError
from lango.store.engine.urls import store_files

_WRITING = {"write_file", "edit_file", "shell"}


def protected_files(settings: Settings) -> list[Path]:
    """Return what no built-in tool may read or write, whatever its workspace is.

    Raises `ConfigError` where the store lies in the workspace of a tool that writes, unless the settings allow it.
    """
    files = store_files(settings.store.url)
    root = Path(settings.tools.workspace).expanduser().resolve()
    inside = [file for file in files[:1] if file.resolve().is_relative_to(root)]
    if inside and _WRITING & {*settings.tools.enabled} and not settings.tools.store_in_workspace:
        raise ConfigError(
            f"the store {settings.store.url} lies in the workspace {settings.tools.workspace!r} of tools that write: "
            "set tools.workspace to a folder of its own, or tools.store_in_workspace = true to run all the same"
        )
    own = [settings.source, Path(settings.agent.module) if settings.agent.module else None]
    return [*files, *(path for path in own if path is not None)]
