"""The values that the runtime returns and takes, for the packages above it: those import no store."""

from lango.runtime.unfinished_turns import ListedTurn
from lango.store.api_keys import ApiKey
from lango.store.artifacts.artifacts import Artifact
from lango.store.credentials.credentials import Owned
from lango.store.lifecycle.integrity import Problem
from lango.store.memory.user_facts import Fact
from lango.store.tool_calls.grants import Grant
from lango.store.turns.model_requests import RequestBodies
from lango.store.turns.node_progress import NodeStep
from lango.store.turns.turn_usage import TurnUsage

__all__ = [
    "ApiKey",
    "Artifact",
    "Fact",
    "Grant",
    "ListedTurn",
    "NodeStep",
    "Owned",
    "Problem",
    "RequestBodies",
    "TurnUsage",
]
