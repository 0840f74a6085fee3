"""docs/reference/events.md: the events of a turn, made of their classes."""

import inspect
from typing import get_args

from lango import events
from lango.server.schemas import STREAM_EXAMPLE
from tests.reference.source import cell, fields_of, first_paragraph, heading, words_of, written


def page() -> str:
    lines = heading(
        "Events of a turn",
        *words_of(events).split("\n\n"),
        """The same events come from `Runtime.stream` as objects of `lango.events`, over HTTP as server-sent events,
        over the WebSocket, and line by line from `lango run --output-format stream-json`; `lango.events.to_json` makes
        the JSON.""",
    )
    lines += [
        "| event | `type` | when |",
        "| --- | --- | --- |",
    ]
    kinds = get_args(events.TurnEvent)
    for kind in kinds:
        lines.append(f"| [`{kind.__name__}`](#{kind.__name__.lower()}) | `{kind.type}` | {cell(_says(kind))} |")
    for kind in (*kinds, events.Usage):
        lines += [
            "",
            f"## {kind.__name__}",
            "",
            _says(kind),
            "",
            "| field | type | default | |",
            "| --- | --- | --- | --- |",
        ]
        for field in fields_of(kind):
            default = f"`{cell(field.default)}`" if field.default else ""
            lines.append(f"| `{field.name}` | `{cell(field.type)}` | {default} | {cell(field.says)} |")
    lines += ["", "## On the wire", "", "```text", *STREAM_EXAMPLE.rstrip().splitlines(), "```"]
    return written(lines)


def _says(kind: type) -> str:
    return first_paragraph(inspect.getdoc(kind) or "")
