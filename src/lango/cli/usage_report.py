"""Print the token and cost report of a session."""

from typing import Any

from lango.cli.tables import print_table
from lango.cli.terminal_text import format_time
from lango.events import Usage
from lango.runtime.sessions.session_usage import SessionUsage
from lango.runtime.values import TurnUsage


def print_usage(usage: SessionUsage, *, as_json: bool) -> None:
    """Print the usage: as the JSON of the server, or as a table of turns with a summary."""
    if as_json:
        from lango.server.api.sessions.usage_routes import UsageReport

        print(UsageReport.from_usage(usage).model_dump_json())
        return
    print_table([turn_row(turn) for turn in usage.turns], empty="no turns", cut=["tools"])
    print(*summary_lines(usage), sep="\n")


def summary_lines(usage: SessionUsage) -> list[str]:
    """Return the limits and the size of the next request, and the totals of all turns."""
    window, rules, total = usage.window, usage.rules, usage.total
    bound = "" if rules.max_messages is None else f" and {rules.max_messages} messages"
    notes = f"notes up to message {window.observed_seq:,}, {window.memory_tokens:,} tokens of the request"
    observer = f"{usage.memory.input_tokens:,} tokens in, {usage.memory.output_tokens:,} out to write them"
    spent = f"{total.model_calls:,} model calls, {total.input_tokens:,} tokens in, {total.output_tokens:,} out"
    return [
        *([f"memory    {notes}", f"          {observer}"] if rules.with_memory else []),
        f"budget    {rules.budget_tokens:,} tokens{bound}",
        f"window    {window.messages:,} messages, {window.tokens:,} tokens in the next request",
        f"left out  {window.left_out_messages:,} messages, {window.left_out_tokens:,} tokens",
        f"all       {usage.all_turns:,} turns, {spent}, {_cost(total) or 'cost unknown'}",
    ]


def turn_row(turn: TurnUsage) -> dict[str, Any]:
    """Return a turn as a row of the table."""
    names = [tool.name if tool.status == "finished" else f"{tool.name} ({tool.status})" for tool in turn.tools]
    return {
        "turn": turn.turn,
        "status": ("rewound" if turn.taken_back else turn.status) + (", resumed" if turn.resumptions else ""),
        "started": format_time(turn.started_at),
        "tokens": turn.tokens,
        "in": turn.usage.input_tokens,
        "out": turn.usage.output_tokens,
        "cost": _cost(turn.usage),
        "model s": float(sum(call.duration_s for call in turn.model_calls)),
        "tools s": float(sum(tool.duration_s or 0 for tool in turn.tools)),
        "tools": ", ".join(names),
    }


def _cost(usage: Usage) -> str:
    return "" if usage.cost_usd is None else f"${usage.cost_usd:.4f}"
