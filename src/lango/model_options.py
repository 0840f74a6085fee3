"""Define what a request sets for the model calls of its turn; it is stored with the turn."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace


class AgentOptions(Struct, frozen=True, omit_defaults=True):
    """What an agent gets instead of its own in one turn; empty: its own."""

    system: str = ""
    """The whole system text of its requests."""
    model: str = ""


class ModelOptions(Struct, frozen=True, omit_defaults=True):
    """What a request sets for the model calls of its turn; a field that it does not set is as configured."""

    tool_choice: str = "auto"
    """`auto`, `none`, `required`, or the name of a tool; a call is only forced in the first model call of the turn."""
    response_schema: Mapping[str, Any] | None = None
    """A JSON schema that the answer must follow."""
    json_object: bool = False
    """Whether the answer must be a JSON object, of any shape."""
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    """The limit of each model call."""
    stop: tuple[str, ...] = ()
    instruction: str = ""
    """The client's: every agent that answers reads it after its own instruction, marked as the client's."""
    model: str = ""
    """Used instead of the root agent's model, by every agent that shares it."""
    session_instruction: str = ""
    """Used instead of the instruction of the root agent."""
    agents: Mapping[str, AgentOptions] = {}
    """What agents get instead of their own, by their names: a developer tries it."""
    client_request: Mapping[str, Any] | None = None
    """The parameters of the request, which no model reads: the API that took it shows them again."""
    parallel_tool_calls: bool = True
    """Whether one answer of the model may call several tools; if not, only its first call counts."""

    @property
    def shapes_answer(self) -> bool:
        """Whether the answer must be JSON."""
        return self.response_schema is not None or self.json_object

    @property
    def for_next_turn(self) -> "ModelOptions":
        """The options after a pause: a forced call was made, and another request is answered."""
        choice = "none" if self.tool_choice == "none" else "auto"
        return replace(self, tool_choice=choice, client_request=None)
