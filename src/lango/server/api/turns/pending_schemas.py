"""Define the responses about what waits: approvals, grants, inputs and results."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, Field

from lango.server.schemas import RecordView


class ApprovalRequest(RecordView):
    """A request to approve a tool call with exactly these arguments."""

    call_id: str
    name: str
    arguments: Mapping[str, Any]
    asked_at: Annotated[datetime, Field(validation_alias="requested_at")]
    expires_at: datetime | None
    """After this time the call counts as rejected; null: it never expires."""
    hint: str = ""
    """What the tool itself says about its request."""
    payload: Any = None
    """What the tool shows besides, and gets back with the answer unless that has a payload of its own."""
    diff: str = ""
    """What the call would change in a file now, as a unified diff; empty: it cannot be shown."""


class ApprovalRequests(BaseModel):
    """The open approval requests of a session."""

    approvals: list[ApprovalRequest]


class Grant(RecordView):
    """A grant of a session: calls of the tool that fit run without asking, while it is active."""

    id: int
    tool: str
    arguments: dict[str, Any] | None
    """The pattern of each argument; null: whatever the arguments."""
    granted_by: str
    granted_at: datetime
    expires_at: datetime | None
    """Null: it does not expire."""
    revoked_at: datetime | None
    revoked_by: str | None
    """The user who revoked it, or `rewind`."""
    active: bool
    """It has neither expired nor been revoked."""


class GrantList(BaseModel):
    """The grants of a session, the newest first."""

    grants: list[Grant]


class InputRequest(RecordView):
    """A request of a workflow, or of a running tool, for a person's input."""

    call_id: str
    message: str
    input_schema: Annotated[dict[str, Any] | None, Field(validation_alias="schema", serialization_alias="schema")]
    """The JSON schema of the value; null: any value."""
    payload: Any
    """What the workflow shows besides the message."""
    path: str
    """The node that requests the input."""
    tool_call_id: str
    """The running tool call that asks; empty: a workflow does."""
    asked_at: Annotated[datetime, Field(validation_alias="requested_at")]
    expires_at: datetime | None
    """After this time the request is closed; null: it never expires."""


class InputRequests(BaseModel):
    """The open input requests of a session, in order."""

    inputs: list[InputRequest]


class AwaitedResult(RecordView):
    """A call of a long-running tool that waits for a result, or for a further one."""

    call_id: str
    name: str
    arguments: Mapping[str, Any]
    asked_at: Annotated[datetime, Field(validation_alias="called_at")]


class AwaitedResults(BaseModel):
    """The calls of a session that wait for results, in order."""

    results: list[AwaitedResult]
