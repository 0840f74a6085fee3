"""Print rows as a table that fits the terminal, or unshortened into a pipe."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct
from msgspec.structs import asdict

from lango.cli.terminal_text import format_age, format_cell, format_cost, format_time, one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from lango.runtime.access import Grant
    from lango.runtime.sessions.session_usage import SessionUsage, TurnUsage

T = TypeVar("T")
_ROWS_PER_LAYOUT = 1000
"""Rows laid out together on a terminal: rich takes long for many, and the first rows should appear at once."""


def print_table(rows: Sequence[Mapping[str, Any]], *, empty: str, cut: Sequence[str] = ()) -> None:
    """Print rows under the names of their keys. Columns in `cut` are shortened on a narrow terminal."""
    if not rows:
        print(empty)
        return
    if not sys.stdout.isatty():
        _print_full_width(rows)  # one line per row, for `grep` and `cut`
        return
    from rich.console import Console

    console = Console(highlight=False)
    for first in range(0, len(rows), _ROWS_PER_LAYOUT):
        _print_trimmed(console, make_table(rows[first : first + _ROWS_PER_LAYOUT], cut=cut))


def print_values(
    values: Iterable[T],
    fields: Callable[[T], dict[str, Any]],
    *,
    as_json: bool,
    empty: str,
    row: Callable[[T], dict[str, Any]] | None = None,
    cut: Sequence[str] = (),
) -> None:
    """Print the fields of values as JSON, one object per line, or their rows as a table."""
    if not as_json:
        print_table([(row or fields)(value) for value in values], empty=empty, cut=cut)
        return
    for value in values:
        print(json.dumps(fields(value)))


def struct_json(value: Struct) -> dict[str, Any]:
    """Return the fields of a struct as JSON, with times as texts."""
    fields = asdict(value)
    return fields | {name: at and format_time(at) for name, at in fields.items() if name.endswith("_at")}


def make_table(rows: Sequence[Mapping[str, Any]], *, cut: Sequence[str] = ()) -> "Table":
    """Make a table of rows with the same keys; numbers are right-aligned."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for at, (name, sample) in enumerate(rows[0].items()):
        number = isinstance(sample, int | float)
        # rich shortens these columns last
        keep_width = number or at == 0 or (bool(cut) and name not in cut)
        table.add_column(name, justify="right" if number else "left", overflow="fold", no_wrap=keep_width)
    for row in rows:
        table.add_row(*(_table_cell(name in cut, value) for name, value in row.items()))
    return table


def _table_cell(cut: bool, value: Any) -> "Text":
    from rich.text import Text

    text = one_line(format_cell(value))
    return Text(text, no_wrap=True, overflow="ellipsis") if cut else Text(text)


def _print_full_width(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print cells unshortened, without rich, which is slow for thousands of rows."""
    from rich.cells import cell_len

    lines = [list(rows[0]), *([one_line(format_cell(value)) for value in row.values()] for row in rows)]
    right = [isinstance(value, int | float) for value in rows[0].values()]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        gaps = [" " * (width - cell_len(text)) for text, width in zip(line, widths, strict=True)]
        cells = (gap + text if to else text + gap for text, gap, to in zip(line, gaps, right, strict=True))
        print("  ".join(cells).rstrip())


def _print_trimmed(console: "Console", table: "Table") -> None:
    """Print a table without trailing spaces."""
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())


def grant_row(grant: "Grant", now: float) -> dict[str, Any]:
    """Return a grant as a row of a table."""
    until = "until it is revoked" if grant.expires_at is None else f"expires {format_time(grant.expires_at)}"
    if grant.revoked_at is not None:
        until = f"revoked {format_age(grant.revoked_at, now)}"
    elif not grant.active:
        until = "expired"
    fits = "any" if grant.arguments is None else json.dumps(grant.arguments, ensure_ascii=False)
    return {"id": str(grant.id), "tool": grant.tool, "arguments": fits, "by": grant.granted_by, "holds": until}


def summary_lines(usage: "SessionUsage") -> list[str]:
    """Return the limits and the size of the next request, and the totals of all turns."""
    window, rules, total = usage.window, usage.rules, usage.total
    bound = "" if rules.most_messages is None else f" and {rules.most_messages} messages"
    notes = f"notes up to message {window.observed_seq:,}, {window.memory_tokens:,} tokens of the request"
    observer = f"{usage.memory.input_tokens:,} tokens in, {usage.memory.output_tokens:,} out to write them"
    spent = f"{total.model_calls:,} model calls, {total.input_tokens:,} tokens in, {total.output_tokens:,} out"
    return [
        *([f"memory    {notes}", f"          {observer}"] if rules.with_memory else []),
        f"budget    {rules.budget_tokens:,} tokens{bound}",
        f"window    {window.messages:,} messages, {window.tokens:,} tokens in the next request",
        f"left out  {window.left_out_messages:,} messages, {window.left_out_tokens:,} tokens",
        *([f"          {window.reason}"] if window.reason else []),
        f"all       {usage.all_turns:,} turns, {spent}, {format_cost(total.cost_usd) or 'cost unknown'}",
    ]


def turn_row(turn: "TurnUsage") -> dict[str, Any]:
    """Return a turn as a row of the table."""
    names = [tool.name if tool.status == "finished" else f"{tool.name} ({tool.status})" for tool in turn.tools]
    return {
        "turn": turn.turn,
        "status": ("rewound" if turn.is_rewound else turn.status) + (", resumed" if turn.resumptions else ""),
        "started": format_time(turn.started_at),
        "tokens": turn.tokens,
        "in": turn.usage.input_tokens,
        "out": turn.usage.output_tokens,
        "cost": format_cost(turn.usage.cost_usd),
        "model s": float(sum(call.duration_s for call in turn.model_calls)),
        "tools s": float(sum(tool.duration_s or 0 for tool in turn.tools)),
        "tools": ", ".join(names),
    }
