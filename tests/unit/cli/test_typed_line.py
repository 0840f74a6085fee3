"""A message that is typed while an answer is shown: what its keys and pasted texts become."""

import pytest

from lango.cli.chat.terminal.typed_line import TypedLine, split_when_busy


@pytest.mark.parametrize(
    ("typed", "sent"),
    [
        ("a\u00a0b 👩\u200d💻\n", ["a\u00a0b 👩\u200d💻"]),
        ("pasted\ntext\n", ["pasted\ntext"]),
        ("x\x1b[A\x01y\n", ["xy"]),
        ("one two\x17three\n", ["one three"]),
        ("gone\x15kept\n", ["kept"]),
        ("\n", []),
    ],
)
def test_keys_become_a_message(typed: str, sent: list[str]) -> None:
    messages: list[str] = []
    TypedLine("", messages.append, lambda _: None).feed(typed.encode())
    assert messages == sent


def test_a_character_may_come_in_two_pieces() -> None:
    line = TypedLine("", lambda _: None, lambda _: None)
    for byte in "é".encode():
        line.feed(bytes([byte]))
    assert line.text == "é"


def test_the_first_word_says_what_becomes_of_a_message() -> None:
    assert split_when_busy("go on") == ("steer", "go on")
    assert split_when_busy("/next go on") == ("wait", "go on")
    assert split_when_busy("/instead go on") == ("rollback", "go on")
    assert split_when_busy("/usage")[0] is None
    assert split_when_busy("/etc/hosts is a path")[0] == "steer"
