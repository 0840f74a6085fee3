"""`lango sessions usage`: the picture of a session as a table."""

from typing import Any

from lango.cli.tables import print_table
from lango.cli.terminal_text import format_time
from lango.config import Settings
from lango.errors import SessionNotFound
from lango.events import Usage
from lango.runtime.session_usage import SessionUsage, TurnUsage, session_usage, window_rules_for
from lango.store import SessionId, Store


async def read_usage(store: Store, name: SessionId, settings: Settings, limit: int) -> SessionUsage:
    """Read the picture of a session as the settings would bound its next request."""
    found = await session_usage(store, name, window_rules_for(settings), limit=limit)
    if found is None:
        raise SessionNotFound(f"there is no session {name.id!r} any more")
    return found


def print_usage(usage: SessionUsage, *, as_json: bool) -> None:
    """Print the picture: one object of JSON as the server sends it, or the turns as a table and four lines below it."""
    if as_json:
        from lango.server.api.usage_routes import UsageReport

        print(UsageReport.from_usage(usage).model_dump_json())
        return
    print_table([turn_row(turn) for turn in usage.turns], empty="no turns", cut=["tools"])
    print(*summary_lines(usage), sep="\n")


def summary_lines(usage: SessionUsage) -> list[str]:
    """Say what bounds the next request, what it would keep, and what all turns took."""
    window, rules, total = usage.window, usage.rules, usage.total
    bound = "" if rules.max_messages is None else f" and {rules.max_messages} messages"
    if rules.with_memory:
        print(f"memory    notes up to message {window.observed_seq:,}, {window.memory_tokens:,} tokens of the request")
    spent = f"{total.model_calls:,} calls of the model, {total.input_tokens:,} tokens in, {total.output_tokens:,} out"
    return [
        f"budget    {rules.budget_tokens:,} tokens{bound}",
        f"window    {window.messages:,} messages, {window.tokens:,} tokens: what the next request keeps",
        f"left out  {window.left_out_messages:,} messages, {window.left_out_tokens:,} tokens",
        f"all       {usage.all_turns:,} turns, {spent}, {_cost(total) or 'cost not known'}",
    ]


def turn_row(turn: TurnUsage) -> dict[str, Any]:
    """Say in a row what a turn took."""
    names = [tool.name if tool.status == "finished" else f"{tool.name} ({tool.status})" for tool in turn.tools]
    return {
        "turn": turn.turn,
        "status": "taken back" if turn.taken_back else turn.status,
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
