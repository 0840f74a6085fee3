"""Control characters in shown text, blocks of Markdown, and the input history."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lango.cli.chat.collapsed_sections import call_title, readable_result
from lango.cli.chat.terminal.input_history import InputHistory
from lango.cli.chat.terminal.markdown_blocks import MarkdownBlocks, split_blocks
from lango.cli.terminal_text import format_age, format_cell, format_cost, one_line, printable


@given(st.text(st.characters()))
def test_control_characters_are_replaced(text: str) -> None:
    shown = printable(text)
    assert not any(ord(one) < 0x20 and one not in "\n\t" for one in shown)
    assert not any(
        0x7F <= ord(one) < 0xA0 or 0x202A <= ord(one) <= 0x202E or 0x2066 <= ord(one) <= 0x2069 for one in shown
    )
    shown.encode()  # half a character would be an error
    assert len(shown) == len(text.replace("\r\n", "\n")), "each sign is as wide as what it stands for"


def test_one_line() -> None:
    assert one_line("a\nb\t c\x1b[2J") == "a b c␛[2J"
    assert one_line("abcdef", 4) == "abc…"


DOCUMENT = "# Head\n\npara\nstill para\n- a\n- b\n\n| a |\n|---|\n| 1 |\n\n```\ncode\n\n# no head\n```\nend\n"


def test_blocks_of_markdown() -> None:
    assert split_blocks(DOCUMENT) == [
        "# Head\n\n",
        "para\nstill para\n",
        "- a\n- b\n\n",
        "| a |\n|---|\n| 1 |\n\n",
        "```\ncode\n\n# no head\n```\n",
        "end\n",
    ]


@given(st.lists(st.integers(1, 12), min_size=1))
def test_blocks_are_the_same_wherever_the_stream_was_cut(sizes: list[int]) -> None:
    blocks, finished, at = MarkdownBlocks(), list[str](), 0
    while at < len(DOCUMENT):
        size = sizes[at % len(sizes)]
        blocks.add(DOCUMENT[at : at + size])
        finished += blocks.take_finished()
        at += size
    assert finished + blocks.take_all() == split_blocks(DOCUMENT)
    assert blocks.growing == ""


@given(st.text(st.sampled_from("ab \r\n#-|`>1.\t\x0b\u2028")))
def test_no_text_is_lost_between_blocks(text: str) -> None:
    assert "".join(split_blocks(text)) == text


def test_half_a_line_is_not_taken_for_a_block() -> None:
    blocks = MarkdownBlocks()
    blocks.add("words\n#")  # an empty heading, or the beginning of a word
    assert blocks.take_finished() == []
    blocks.add("tag and more\n")
    assert blocks.take_finished() == []
    assert blocks.take_all() == ["words\n#tag and more\n"]


def test_calls_as_one_line() -> None:
    assert call_title("read_file", {"path": "a.txt", "lines": [1, 2]}) == 'read_file(path="a.txt", lines=[1, 2])'
    assert len(call_title("write", {"text": "x" * 1000})) < 60
    assert readable_result({"out": "a\nb", "code": 1}) == "out:\n  a\n  b\ncode: 1"
    assert readable_result({"out": "x\n" * 500}).endswith("... 101 more lines")


def test_history_is_private_and_holds_no_secrets(tmp_path: Path) -> None:
    file = tmp_path / "state" / "history"
    past = InputHistory(file, {"MY_TOKEN": "very-long-secret", "SHORT_KEY": "abc"})
    for text in ("hello", "hello", "two\nlines", " private", "the token is very-long-secret", "sk-123", "abc is short"):
        past.append_string(text)
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(InputHistory(file, {}).load_history_strings()) == ["abc is short", "two\nlines", "hello"]
    file.chmod(0o644)
    with file.open("a") as damaged:
        damaged.write("no entry\n")
    again = InputHistory(file, {})
    again.append_string("more")
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(again.load_history_strings())[:2] == ["more", "abc is short"]


def test_history_is_limited_and_needs_no_file(tmp_path: Path) -> None:
    file = tmp_path / "history"
    past = InputHistory(file, {})
    for number in range(1200):
        past.append_string(f"{number} " + "x" * 1000)
    kept = list(past.load_history_strings())
    assert file.stat().st_size <= 500_000
    assert kept[0].startswith("1199 ")
    assert 400 < len(kept) < 500
    nowhere = InputHistory(Path("/proc/none/history"), {})
    nowhere.append_string("kept while the program runs")
    assert nowhere.get_strings() == ["kept while the program runs"]


@pytest.mark.parametrize(("value", "text"), [(None, ""), (True, "yes"), (12345, "12,345"), (1.5, "1.50"), ("a", "a")])
def test_cells(value: object, text: str) -> None:
    assert format_cell(value) == text


def test_ages() -> None:
    assert [format_age(1000.0 - back, 1000.0) for back in (-5, 3, 60, 7200, 90_000)] == [
        "just now",
        "just now",
        "1 minute ago",
        "2 hours ago",
        "1 day ago",
    ]


@pytest.mark.parametrize(
    ("cost_usd", "shown"),
    [(None, ""), (0.0, "$0.00"), (0.00002, "<$0.0001"), (0.0013, "$0.0013"), (0.5, "$0.5000"), (1234.5, "$1,234.50")],
)
def test_a_small_cost_is_not_shown_as_none(cost_usd: float | None, shown: str) -> None:
    assert format_cost(cost_usd) == shown
