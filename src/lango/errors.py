"""Every error that Lango raises, in one tree; `docs/reference/errors.md` draws it.

Errors of other libraries do not leave the package that called them: each boundary raises one of these, with the
original as its `__cause__`.
"""


class LangoError(Exception):
    """Base class of everything that Lango raises on purpose."""

    retry_after_s: float | None = None
    """The time after which a retry may work, where it is known."""

    def __init__(self, *args: object, retry_after_s: float | None = None) -> None:
        super().__init__(*args)
        if retry_after_s is not None:
            self.retry_after_s = retry_after_s


class UsageError(LangoError):
    """The caller can fix it; the message says how."""


class ConfigError(UsageError):
    """A setting is missing or wrong."""


class CredentialKeyError(ConfigError):
    """The key that encrypts credentials is missing or wrong; the message says what to do."""


class FeatureRefused(ConfigError):
    """An app uses a feature of ADK that Lango does not run, or that its model does not have."""


class MissingCredentials(ConfigError):
    """A provider's key is not set."""


class MissingDependency(ConfigError):
    """An optional package is not installed; the message holds the `pip install` line."""


class AttachmentRefused(UsageError):
    """A message has files that are too large, too many or of an unknown type."""


class ArtifactRefused(UsageError):
    """An artifact is larger than allowed."""


class ReferenceRefused(UsageError):
    """A reference to an artifact leads to another session or user, in a circle, or is not the URI of an artifact."""


class ClientToolRefused(UsageError):
    """A client's tool cannot be offered to a model: its name is taken, or its schema is invalid."""


class ModelOptionsRefused(UsageError):
    """The agent cannot follow an option of a request: a schema of the answer, or a tool that its model must call."""


class StateRefused(UsageError):
    """A client may not write a credential, or a name that ADK reserves, into the state; nothing was stored."""


class SessionOptionsRefused(UsageError):
    """The settings do not allow the model or the instruction that was chosen for a session; nothing was stored."""


class GrantRefused(UsageError):
    """A grant is malformed, too long, too broad, or does not fit the call it came with; nothing was stored."""


class ScheduleRefused(UsageError):
    """A schedule cannot run as it was given; the message names the field and what to do. Nothing was stored."""


class IdempotencyKeyReused(UsageError):
    """The idempotency key was used before, with another request; nothing was stored."""


class InvalidAnswer(UsageError):
    """The answer does not fit the wait; the message says why, and nothing was stored."""


class TriggerRefused(UsageError):
    """A request to a trigger has no valid secret or signature, or there is no such trigger: it does not say which."""


class WebhookRefused(UsageError):
    """A webhook cannot be added: its address is not a URL, or there are too many; nothing was stored."""


class InvalidPayload(UsageError):
    """The payload of a trigger is not JSON, or lacks a value that the trigger needs; nothing was stored."""


class PayloadTooLarge(InvalidPayload):
    """The payload of a trigger is larger than the trigger allows."""


class ToolNotFound(UsageError):
    """The agent has no tool of that name; it may be a tool that its toolset cannot list outside a turn."""


class ToolRefused(UsageError):
    """The tool may not be called by hand: the settings deny it, or it runs elsewhere; the message says which."""


class ApprovalRequired(UsageError):
    """The tool runs only after an approval: nothing ran."""


class StoreUrlError(UsageError):
    """The store's address cannot be used."""


class StoreError(LangoError):
    """The store refused an operation, or could not complete it."""


class StoreUnavailable(StoreError):
    """The database is not available; nothing was written. Retry after `retry_after_s`."""


class OutcomeUnknown(StoreUnavailable):
    """The connection was lost during a commit: it is not known whether it was written."""


class StoreDamaged(StoreUnavailable):
    """A database file is damaged, truncated or foreign: stored data may be lost. Nothing is written."""


class SchemaError(StoreError):
    """The database was not made by Lango, or by a newer version of it."""


class SessionNotFound(StoreError):
    """There is no such session."""


class SessionExists(StoreError):
    """A session with that id exists already."""


class TraceNotFound(StoreError):
    """A trace has no such turn or request: it was never kept, or is no longer kept."""


class MessageNotFound(StoreError):
    """There is no such message in the session, or it was rewound."""


class ArtifactNotFound(StoreError):
    """The session and its user have no such artifact, or it has no such version."""


class GrantNotFound(StoreError):
    """There is no such grant in the session, or it has ended."""


class ScheduleNotFound(StoreError):
    """The user has no such schedule in this app."""


class EventsGone(StoreError):
    """The events after that id are no longer kept: read the messages, then follow the session again."""


class InvalidExport(StoreError):
    """An export of a session that cannot be read; the message names the line, and nothing was written."""


class Unstorable(StoreError):
    """A value that the databases cannot store; nothing was written."""


class Conflict(StoreError):
    """Another writer was faster; nothing of this write was stored."""


class StaleSession(Conflict):
    """Another writer changed the session since it was loaded."""


class FencedWrite(Conflict):
    """The turn that writes has lost its lease to a newer one."""


class TurnRunning(Conflict):
    """The session already has a running turn."""


class EventConflict(Conflict):
    """An event with this id is stored already, with other content."""


class ProviderError(LangoError):
    """A model's API did not return a usable response."""

    def __init__(
        self, message: str, *, provider: str = "", status: int | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.provider = provider
        self.status = status


class ProviderRejected(ProviderError):
    """The provider rejects this request, and would reject it again."""


class ProviderAuthError(ProviderRejected):
    """The provider does not accept the key."""


class UnknownModel(ProviderRejected, ConfigError):
    """There is no model of that name; the message holds the name."""


class ProviderUnavailable(ProviderError):
    """Rate limit, server error or no connection: a retry may work, after `retry_after_s` where it is known."""


class ProviderRateLimited(ProviderUnavailable):
    """The provider accepts no more requests for now: retry after `retry_after_s` where it is known."""


class ProviderTimeout(ProviderError):
    """The provider sent no response, or no next chunk, in time."""


class ProviderProtocolError(ProviderError):
    """The provider's response breaks its own wire format, or ended too early."""


class BudgetTooSmall(LangoError):
    """The least that must be sent exceeds the token budget."""


class TurnFailed(LangoError):
    """A turn ended without an answer. What was stored stays, and the history is valid."""


class AgentFailed(TurnFailed):
    """The agent, or ADK, raised, and the original is the cause; or the agent reported an error in an event."""


class AgentNotFound(TurnFailed):
    """The model transferred to an agent that does not exist, twice."""


class TurnLimit(TurnFailed):
    """Too many model calls in one turn, or the same wrong tool call repeated."""


class TokensUsedUp(TurnFailed):
    """The tokens of the day were used up before the turn started: nothing of it ran. Send the message tomorrow."""


class TurnTimeout(TurnFailed):
    """The turn made no progress for too long, or took too long in all."""


class TurnCancelled(TurnFailed):
    """The user stopped the turn."""


class TurnReleased(TurnFailed):
    """The process stopped before the end of the turn, which another process continues; follow it there."""


class TurnAbandoned(TurnFailed):
    """The turn was run as often as `agent.max_attempts` allows, and its process died each time."""


class TurnDiverged(TurnFailed):
    """A turn that was resumed after a crash asked for another step than its record has; it is not continued."""


class NodeOutcomeUnknown(TurnFailed):
    """A node of a workflow that must run at most once had started when its process died; it is not run again."""


class EmptyAnswer(TurnFailed):
    """The model returned no text, or its provider blocked it; the message holds the reason."""


class IssuerUnavailable(LangoError):
    """The token issuer does not return its keys: no token can be verified now."""


class Stopping(LangoError):
    """The server or runtime is closing: it stores no messages and ends its streams. Retry after `retry_after_s`."""

    retry_after_s = 1.0  # another replica is ready, or the next process soon


class NothingNoted(LangoError):
    """An observer's reply contained no notes: its messages stay unobserved until a later try."""


class TooManyEvents(LangoError):
    """A trigger received more events than its limit per minute; nothing was stored. Retry after `retry_after_s`."""


class TimedOut(LangoError):
    """No event came in the time that a node waits for it."""


class WaitNotOpen(LangoError):
    """No such wait is open. `reason` says why."""

    def __init__(self, message: str, reason: str = "unknown") -> None:
        """`reason`: `answered`, `expired`, `superseded` by a message, `cancelled`, `rewound`, or `unknown`."""
        super().__init__(message)
        self.reason = reason


class ToolError(LangoError):
    """A tool call failed. The model reads the message and the `details`."""

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.details = details


class InvalidArguments(ToolError):
    """The arguments do not match the tool's schema; the handler did not run."""


class NotJson(ToolError):
    """A handler returned a value that JSON cannot express."""


class CredentialTimeout(ToolError):
    """A token server did not answer in time, or too many of them are being asked; the credential was not exchanged."""


class BlockedAddress(ToolError):
    """The address is not on the public internet."""


def error_type(name: str) -> type[LangoError] | None:
    """Return the error class of a name, such as a turn's last event carries."""
    kind = globals().get(name)
    return kind if isinstance(kind, type) and issubclass(kind, LangoError) else None
