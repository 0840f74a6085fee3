"""Models behind one small protocol. Each vendor's SDK is imported when its provider is first used."""

from lango.providers.catalog import label, resolve
from lango.providers.protocol import (
    CallDelta,
    Delta,
    Finish,
    Provider,
    Request,
    TextDelta,
    ThoughtDelta,
    ToolSpec,
    UsageDelta,
)
from lango.providers.sdk.sdk_client import Timeouts
from lango.providers.wrappers.resilience import Fallback, ResilientProvider, Retries

__all__ = [
    "CallDelta",
    "Delta",
    "Fallback",
    "Finish",
    "Provider",
    "Request",
    "ResilientProvider",
    "Retries",
    "TextDelta",
    "ThoughtDelta",
    "Timeouts",
    "ToolSpec",
    "UsageDelta",
    "label",
    "resolve",
]
