"""Where a conversation that a client resends leaves the stored one."""

import pytest

from lango.messages import Message
from lango.server.compat.edited_history import find_edit


def conversation(*texts: str) -> list[Message]:
    """Return a conversation: texts that begin with `>` are answers."""
    return [Message("assistant", text[1:]) if text.startswith(">") else Message("user", text) for text in texts]


def stored(*texts: str) -> list[tuple[int, str]]:
    return [(10 * (number + 1), text) for number, text in enumerate(texts)]


SAME: dict[str, tuple[list[str], list[str], bool]] = {
    "it continues": (["a", ">1", "b", ">2", "c"], ["a", "b"], True),
    "only the new message": (["c"], ["a", "b"], True),
    "only new messages": (["c", "d"], ["a", "b"], True),
    "without the beginning": (["b", ">2", "c"], ["a", "b"], True),
    "a greeting of the client": ([">hello", "a"], ["a"], True),
    "an answer to a workflow, which is no message": (["a", ">1", "red", ">2", "b", ">3", "c"], ["a", "b"], True),
    "a message that is not stored yet": (["a", ">1", "b", "c"], ["a"], True),
    "a long session": (["y", ">1", "z", ">2", "new"], ["x", "y", "z"], False),
    "nothing in common with the newest part": (["a", ">1", "b"], ["x", "y"], False),
}


@pytest.mark.parametrize("name", SAME)
def test_a_conversation_that_is_not_edited(name: str) -> None:
    sent, held, is_complete = SAME[name]
    assert find_edit(conversation(*sent), stored(*held), is_complete=is_complete) is None


EDITED: dict[str, tuple[list[str], list[str], bool, int, list[str]]] = {
    "the last message": (["a", ">1", "B"], ["a", "b"], True, 20, []),
    "the last message again": (["a", ">1", "b"], ["a", "b"], True, 20, []),
    "a message in the middle": (["a", ">1", "B"], ["a", "b", "c"], True, 20, []),
    "and what followed is kept": (["a", ">1", "B", ">2", "c"], ["a", "b"], True, 20, ["B", ">2"]),
    "the first message": (["A", ">1", "b"], ["a", "b"], True, 10, ["A", ">1"]),
    "in a long session": (["y", ">1", "Z"], ["x", "y", "z"], False, 30, []),
}


@pytest.mark.parametrize("name", EDITED)
def test_a_conversation_that_is_edited(name: str) -> None:
    sent, held, is_complete, before, history = EDITED[name]
    edit = find_edit(conversation(*sent), stored(*held), is_complete=is_complete)
    assert edit is not None
    assert (edit.before, [*edit.history]) == (before, conversation(*history))
