"""Define the sections of triggers, which other systems call, and of webhooks, which notify other systems."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from lango.config.sections import Seconds, Section
from lango.waits.pauses import EVENT_NAME
from lango.webhooks.templates import Matched, parse_path, require_valid

Variable = Annotated[str, Field(min_length=1)]
_Template = Annotated[str, AfterValidator(require_valid)]
WebhookEvent = Literal["done", "waiting", "failed", "cancelled"]
REPORTED: list[WebhookEvent] = ["done", "waiting", "failed"]


class TriggerSettings(Section):
    """`[triggers.<name>]`: a sender that starts turns by `POST /v1/triggers/<name>`."""

    verify: Literal["path", "standard", "github", "slack", "stripe", "hmac"]
    """How a request shows that it is the sender's: by the secret in the path, `/v1/triggers/<name>/<secret>`, or by a
    signature as Standard Webhooks, GitHub, Slack or Stripe make it, or by a plain HMAC with SHA-256 in `header`."""
    secret_env: Variable
    """The environment variable that holds the secret."""
    previous_secret_env: str = ""
    """The environment variable of an earlier secret, which is still accepted while the sender changes to the new
    one."""
    header: str = ""
    """The header that holds the HMAC of the body, in hexadecimal digits or base64, only with `verify = "hmac"`."""
    tolerance_s: Seconds = 300.0
    """How old a signed request may be, and how far ahead of this machine's clock; where the sender signs no time, as
    GitHub, it has no effect."""
    delivery_id: str = ""
    """Where the sender's id of an event is: `header:<name>`, or a path in the payload, such as `event.id`. The same id
    starts one turn only. By default where the sender puts it; without one, a hash of the body."""
    where: dict[str, Matched | list[Matched]] = Field(default={})
    """Which payloads start a turn: paths, each with its value, or a list of values. Others are ignored."""
    agent: str | None = None
    """The app whose agent gets the message, on a server of several; by default the first one."""
    user_id: Annotated[str, Field(min_length=1)] = "user"
    """The user whose session it is."""
    session: _Template = "{trigger.name}-{trigger.delivery}"
    """The id of the session, with values of the payload, such as `"issue-{issue.number}"`; by default a session for
    each event."""
    message: _Template = "The trigger {trigger.name} received this event:\n\n{payload}"
    """The message, with values of the payload, which are quoted as data."""
    event: Annotated[str, Field(pattern=rf"^({EVENT_NAME})?$")] = ""
    """The name of an event for turns that wait for it (`lango.adk.wait_for_event`), which get the payload instead of a
    message. Only waits of `user_id` count, and only those of `session`, if that is set."""
    limit_per_minute: Annotated[int, Field(gt=0)] = 60
    """Limit of new events, counted by each process; the sender is asked to repeat others later."""
    max_bytes: Annotated[int, Field(gt=0)] = 256_000
    """Size limit of a request."""

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.event and "message" in self.model_fields_set:
            raise ValueError("event and message exclude each other: the payload is sent to a wait, or to the model")
        if (self.verify == "hmac") != bool(self.header):
            raise ValueError('header and verify = "hmac" need each other')
        for path in (*self.where, *([self.delivery_id] if self.delivery_id else ())):
            parse_path(path.removeprefix("header:"))
        return self


class WebhookSettings(Section):
    """`[webhooks.<name>]`: an address that is notified when turns end, of all sessions of the agent."""

    url: Annotated[str, Field(pattern=r"^https?://")]
    """Where requests are sent to. Only public addresses are reached, and those of `server.webhook_addresses`."""
    secret_env: Variable
    """The environment variable that holds the secret that signs them, `whsec_` and base64, as in Standard Webhooks."""
    events: Annotated[list[WebhookEvent], Field(min_length=1)] = REPORTED
    """Which ends are reported."""
    include_text: bool = False
    """Whether the text of the answer, or of the error, is sent too."""
