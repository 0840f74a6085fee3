"""Load a user's own agent with ADK's loader."""

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
    """Load the `root_agent` or `app` of a folder, a Python file or a `root_agent.yaml`.

    Raise `ConfigError` with the problem in one line, and the line of the user's file that caused it.
    """
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
            warnings.filterwarnings("ignore", r"\[EXPERIMENTAL\] _load_from_yaml_config", UserWarning)
            return AgentLoader(str(folder)).load_agent(name)
    except LangoError:
        raise
    except Exception as error:
        problem = f"{_describe_error(error)}{_error_location(error, folder)}"
        raise ConfigError(f"the agent {path} cannot be loaded: {problem}") from error


def forget_modules(path: str) -> None:
    """Forget the imported modules of an agent, so that its files are read again."""
    place = Path(path).resolve()
    files = {name: getattr(module, "__file__", None) for name, module in [*sys.modules.items()]}
    for name in [name for name, file in files.items() if file and Path(file).resolve().is_relative_to(place)]:
        del sys.modules[name]
    importlib.invalidate_caches()


def _describe_error(error: Exception) -> str:
    """Describe an error in one line, with its class unless that adds nothing: a `KeyError` shows only the key."""
    if isinstance(error.__cause__, ValidationError):  # the first line of its text only counts the problems
        return "; ".join(problem["msg"].removeprefix("Value error, ") for problem in error.__cause__.errors())
    message = str(error.args[0] if len(error.args) == 1 else error).strip().partition("\n")[0]
    message = message.removesuffix(":")  # the details follow on further lines
    return message if type(error) in (ValueError, ModuleNotFoundError) else f"{type(error).__name__}: {message}"


def _error_location(error: Exception, folder: Path) -> str:
    """Return the file and line of the user's own code that raised an error; empty if none did."""
    frames = traceback.extract_tb(error.__traceback__)
    if error.__cause__ is not None:  # ADK's loader wrapped the error
        frames += traceback.extract_tb(error.__cause__.__traceback__)
    own = [
        frame
        for frame in frames
        if Path(frame.filename).is_relative_to(folder) and "site-packages" not in frame.filename
    ]
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
