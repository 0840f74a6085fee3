"""Read the deltas of a provider's answer."""

import json
from collections.abc import Sequence

from lango.messages import ToolCall
from lango.providers.protocol import CallDelta, Delta, Provider, Request, TextDelta, UsageDelta


async def deltas_of(provider: Provider, request: Request) -> list[Delta]:
    return [delta async for delta in provider.stream(request)]


def text_of(deltas: Sequence[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def usage_of(deltas: Sequence[Delta]) -> UsageDelta:
    return [delta for delta in deltas if isinstance(delta, UsageDelta)][-1]


def call_of(deltas: Sequence[Delta]) -> ToolCall:
    calls = [delta for delta in deltas if isinstance(delta, CallDelta)]
    arguments = "".join(call.arguments for call in calls)
    return ToolCall(calls[0].id, calls[0].name, json.loads(arguments))
