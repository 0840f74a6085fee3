"""Somebody's own agent, loaded as ADK loads it; what is wrong with it in one line, with the place."""

import importlib
import sys
import traceback
import warnings
from pathlib import Path

from google.adk.agents import BaseAgent
from google.adk.apps import App
from google.adk.cli.utils.agent_loader import AgentLoader
from pydantic import ValidationError

from lango.errors import ConfigError, LangoError


def load_agent(path: str) -> BaseAgent | App:
    """Load a `root_agent` or `app` with ADK's loader: a folder, a Python file or a `root_agent.yaml`."""
    place = Path(path).resolve()
    if not place.exists():
        raise ConfigError(f"agent.module: there is no {path}")
    if place.is_file() and place.name not in ("agent.py", "root_agent.yaml", "__init__.py"):
        folder, name = place.parent, place.stem
    else:
        package = place if place.is_dir() else place.parent
        folder, name = package.parent, package.name
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"\[EXPERIMENTAL\] _load_from_yaml_config", UserWarning)  # it only looks
            return AgentLoader(str(folder)).load_agent(name)
    except LangoError:
        raise
    except Exception as error:
        problem = f"{_describe_error(error)}{_error_location(error, folder)}"
        raise ConfigError(f"agent.module: {path} cannot be loaded: {problem}") from error


def _describe_error(error: Exception) -> str:
    """Return an error's words on one line, with its kind where they say little: a `KeyError` says only the key."""
    if isinstance(error.__cause__, ValidationError):  # its first line only counts what is wrong
        return "; ".join(one["msg"].removeprefix("Value error, ") for one in error.__cause__.errors())
    message = str(error.args[0] if len(error.args) == 1 else error).strip().partition("\n")[0]
    message = message.removesuffix(":")  # and then what it found, at length
    return message if type(error) in (ValueError, ModuleNotFoundError) else f"{type(error).__name__}: {message}"


def _error_location(error: Exception, folder: Path) -> str:
    """Say at which line of the user's own files it went wrong, when it was in one of them."""
    frames = traceback.extract_tb(error.__traceback__)
    if error.__cause__ is not None:  # ADK's loader raised its own of it
        frames += traceback.extract_tb(error.__cause__.__traceback__)
    own = [
        frame
        for frame in frames
        if Path(frame.filename).is_relative_to(folder) and "site-packages" not in frame.filename
    ]
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""


def preload_adk() -> None:
    """Import what ADK imports in its first run, a second and a half in which nothing else of the process would run."""
    importlib.import_module("google.adk.workflow").Workflow  # noqa: B018 - an attribute that imports
    optional = "google.adk.agents.remote_a2a_agent"
    try:
        importlib.import_module(optional)
    except ImportError:
        vars(sys)["modules"][optional] = None  # it needs another package; ADK would try it again in every turn
