"""Find what a user may say first to an agent: the suggestions of its settings, or how its test cases begin."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from lango.config import Settings
from lango.errors import UsageError
from lango.runtime.sessions.eval_sets import case_files, read_cases

_MOST = 4
_MAX_CHARACTERS = 200


def suggestions_for(settings: Settings) -> list[str]:
    """Return the suggestions of the settings, or else the first messages of the test cases beside the agent's files.

    It reads files: call it in a thread.
    """
    agent = settings.agent
    if agent.suggestions or not agent.module:
        return agent.suggestions
    return list(islice(dict.fromkeys(_first_messages(case_files(settings))), _MOST))


def _first_messages(files: list[Path]) -> Iterator[str]:
    for file in files:
        try:
            cases = read_cases(file)
        except UsageError:  # `lango eval` says why
            continue
        for case in cases:
            text = case.exchanges[0].text.strip()
            if text and len(text) <= _MAX_CHARACTERS:
                yield text
