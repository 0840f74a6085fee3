"""docs/reference/events.md: the events of a turn, from their classes."""

import inspect
from typing import get_args

from lango import events
from lango.server.openapi import STREAM_EXAMPLE
from tests.reference.source import cell, docstring_of, fields_of, first_paragraph, heading, to_page


def page() -> str:
    lines = heading(
        "Events of a turn",
        *docstring_of(events).split("\n\n"),
        """`Runtime.stream` yields these events as objects of `lango.events`. The server sends them as server-sent
        events and over the WebSocket, and `lango run --output-format stream-json` prints one per line;
        `lango.events.to_json` returns their JSON.""",
    )
    lines += [
        "| event | `type` | when |",
        "| --- | --- | --- |",
    ]
    kinds = get_args(events.TurnEvent)
    for kind in kinds:
        tag = kind.__struct_config__.tag
        lines.append(f"| [`{kind.__name__}`](#{kind.__name__.lower()}) | `{tag}` | {cell(_description(kind))} |")
    for kind in (*kinds, events.Usage):
        lines += [
            "",
            f"## {kind.__name__}",
            "",
            _description(kind),
            "",
            "| field | type | default | |",
            "| --- | --- | --- | --- |",
        ]
        for field in fields_of(kind):
            default = f"`{cell(field.default)}`" if field.default else ""
            lines.append(f"| `{field.name}` | `{cell(field.type)}` | {default} | {cell(field.description)} |")
    lines += ["", "## On the wire", "", "```text", *STREAM_EXAMPLE.rstrip().splitlines(), "```"]
    return to_page(lines)


def _description(kind: type) -> str:
    return first_paragraph(inspect.getdoc(kind) or "")
