"""Every error that Lango raises, in one tree.

```
LangoError
├── UsageError                 the caller can mend it: the command line exits with 2
│   ├── ConfigError            a setting is missing or wrong
│   │   ├── MissingCredentials a provider's key is not set
│   │   └── MissingDependency  an optional package is not installed
│   ├── AttachmentRefused      files that are too large, too many or of no kind
│   ├── ClientToolRefused      a tool of the client that cannot be offered to a model
│   ├── IdempotencyKeyReused   the key came before in this session, with another message
│   └── StoreUrlError          the store's address cannot be used
├── StoreError
│   ├── StoreUnavailable       locked, full, read-only, unreachable: nothing was written
│   │   ├── OutcomeUnknown     the connection was lost in a commit, and did not come back in time
│   │   └── StoreDamaged       a file of the database is damaged, cut off, or another's
│   ├── SchemaError            no database of ours, or one that a newer version made
│   ├── SessionNotFound
│   ├── SessionExists
│   ├── MessageNotFound        no such message in the session, or one that was taken back
│   ├── EventsGone             the events after that id are not kept any more
│   ├── InvalidExport          an export that cannot be read: nothing was written
│   ├── Unstorable             a value that neither database can keep
│   └── Conflict
│       ├── StaleSession       somebody else wrote to the session first
│       ├── FencedWrite        the turn that writes has lost its lease
│       ├── TurnRunning        the session already has a running turn
│       └── EventConflict      this event id was stored before, with other content
├── ProviderError              what a model's API answered
│   ├── ProviderRejected       it will not take this request (4xx)
│   │   ├── ProviderAuthError  the key is not accepted
│   │   └── UnknownModel       there is no model of that name
│   ├── ProviderUnavailable    rate limit, server error, no connection: worth a retry
│   ├── ProviderTimeout        no answer, or no next chunk, in time
│   └── ProviderProtocolError  an answer that breaks its own wire format
├── TurnFailed                 a turn that ended without an answer; what was stored so far stays
│   ├── AgentFailed            the agent, or ADK, raised
│   ├── AgentNotFound          a transfer to an agent that does not exist, twice
│   ├── TurnLimit              too many calls of the model, or the same call again and again
│   ├── TurnTimeout            nothing happened for too long, or all of it took too long
│   ├── TurnCancelled          somebody stopped it
│   └── EmptyAnswer            the model said nothing, or was not allowed to
├── ToolError                  a tool could not do what it was asked: a result for the model
│   ├── InvalidArguments       they do not follow the tool's schema; the handler was not run
│   ├── NotJson                the handler returned what JSON cannot say
│   └── BlockedAddress         the address is not on the public internet
├── IssuerUnavailable          who gives out tokens does not answer: they cannot be verified now
├── NothingNoted               an observer's answer held no note: what it was shown stays unobserved
├── ApprovalExpired            there is nothing to approve (any more)
├── CallNotWaiting             no call of a client's tool waits for this result (any more)
└── BudgetTooSmall             what must be sent is larger than the token budget
```

A lower library's error never leaves the room that called it: each boundary turns it into one of these, with the
original as its `__cause__`.
"""


class LangoError(Exception):
    """The root: everything Lango raises on purpose."""


class UsageError(LangoError):
    """Something the caller can mend; the message says how."""


class ConfigError(UsageError):
    """A setting is missing or wrong."""


class MissingCredentials(ConfigError):
    """A provider's key is not set."""


class MissingDependency(ConfigError):
    """An optional package is not installed; the message holds the `pip install` line."""


class AttachmentRefused(UsageError):
    """A message brings files that are too large, too many, or of no kind."""


class ClientToolRefused(UsageError):
    """A tool that the client would run cannot be offered to a model: its name is taken, or its schema is none."""


class IdempotencyKeyReused(UsageError):
    """The idempotency key came before in this session, with another message; nothing was stored, and nothing runs."""


class StoreUrlError(UsageError):
    """The store's address cannot be used."""


class StoreError(LangoError):
    """The store refused, or could not do, what it was asked."""


class StoreUnavailable(StoreError):
    """The database cannot serve now; nothing was written. `retry_after_s` says when another try makes sense."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class OutcomeUnknown(StoreUnavailable):
    """The connection was lost while something was committed: it is not known whether it was written."""


class StoreDamaged(StoreUnavailable):
    """A file of the database is damaged, cut off or another's: what was stored may be lost. Nothing is written."""


class SchemaError(StoreError):
    """The database is not one of ours, or a newer version of Lango made it."""


class SessionNotFound(StoreError):
    """There is no such session."""


class SessionExists(StoreError):
    """A session of that id is already there."""


class MessageNotFound(StoreError):
    """There is no such message in the session, or it was taken back."""


class EventsGone(StoreError):
    """The events after that id are not kept any more: read the messages, then follow the session anew."""


class InvalidExport(StoreError):
    """An export of a session that cannot be read; the message names the line, and nothing was written."""


class Unstorable(StoreError):
    """A value that neither database can keep; nothing was written."""


class Conflict(StoreError):
    """Two writers met; this one lost and nothing of its write was kept."""


class StaleSession(Conflict):
    """Somebody else wrote to the session since it was loaded."""


class FencedWrite(Conflict):
    """The turn that writes has lost its lease to a newer one."""


class TurnRunning(Conflict):
    """The session already has a running turn."""


class EventConflict(Conflict):
    """An event of this id is stored already, and it is not the same event."""


class ProviderError(LangoError):
    """A model's API did not give an answer that can be used."""

    def __init__(self, message: str, *, provider: str = "", status: int | None = None) -> None:
        super().__init__(message)
        self.provider = provider
        self.status = status


class ProviderRejected(ProviderError):
    """The provider will not take this request; the same one again gets the same answer."""


class ProviderAuthError(ProviderRejected):
    """The provider does not accept the key."""


class UnknownModel(ProviderRejected, ConfigError):
    """There is no model of that name; the message holds the name."""


class ProviderUnavailable(ProviderError):
    """Rate limit, server error or no connection: another try may work, after `retry_after_s` if it was said."""

    def __init__(
        self,
        message: str,
        *,
        provider: str = "",
        status: int | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, provider=provider, status=status)
        self.retry_after_s = retry_after_s


class ProviderTimeout(ProviderError):
    """The provider gave no answer, or no next chunk, in time."""


class ProviderProtocolError(ProviderError):
    """The provider's answer breaks its own wire format, or ended before it was finished."""


class BudgetTooSmall(LangoError):
    """The least that must be sent is larger than the token budget."""


class TurnFailed(LangoError):
    """A turn ended without an answer. What was stored so far stays, and the history is valid."""


class AgentFailed(TurnFailed):
    """The agent, or ADK, raised; the original is the cause."""


class AgentNotFound(TurnFailed):
    """The model asked for an agent that does not exist, was told so, and asked for one again."""


class TurnLimit(TurnFailed):
    """Too many calls of the model in one turn, or the same call of a tool again and again."""


class TurnTimeout(TurnFailed):
    """Nothing happened for too long, or the turn as a whole took too long."""


class TurnCancelled(TurnFailed):
    """Somebody stopped the turn."""


class EmptyAnswer(TurnFailed):
    """The model said nothing, or was not allowed to; the message holds the provider's reason."""


class IssuerUnavailable(LangoError):
    """The issuer of tokens does not give its keys: no token can be verified now."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NothingNoted(LangoError):
    """An observer's answer held no note: what it was shown stays unobserved, and is tried again later."""


class ApprovalExpired(LangoError):
    """There is nothing to approve: it was answered before, or the conversation went on without it."""


class CallNotWaiting(LangoError):
    """No call of a client's tool waits for this result: there was none, or the conversation went on without it."""


class ToolError(LangoError):
    """A tool could not do what it was asked. The message is for the model; `details` are put beside it."""

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.details = details


class InvalidArguments(ToolError):
    """The arguments do not follow the tool's schema; the handler was not run."""


class NotJson(ToolError):
    """A handler returned something that JSON cannot say."""


class BlockedAddress(ToolError):
    """The address is not on the public internet."""
