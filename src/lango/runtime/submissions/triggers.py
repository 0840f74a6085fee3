"""Accept the requests of other systems as messages: verify each, recognise repeated ones, and quote its payload.

A request is verified before its body is parsed, and rejected by its head alone where possible. An event that was
received before costs one indexed read.
"""

import hashlib
import hmac
import math
import os
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import parse_qsl

from msgspec import Struct

from lango.config import TriggerSettings
from lango.errors import (
    ConfigError,
    InvalidPayload,
    PayloadTooLarge,
    TooManyEvents,
    TriggerRefused,
)
from lango.json_values import TooManyValues, read_json
from lango.sessions import SessionId
from lango.store import Store
from lango.store.sessions.sent_events import SentEvent, is_sent
from lango.store.turns.client_requests import find_key_of_name
from lango.submissions import SubmittedMessage, TurnRequest
from lango.threads import run_in_thread
from lango.turns.running_turn import RunningTurn
from lango.webhooks.signatures import SignatureKind, is_signed_by, signature_header, signing_key
from lango.webhooks.templates import Template, Values, fill_id, fill_message, parse_path, parse_template

_MINUTE_S = 60.0
_READ_AT_ONCE = 100_000
_MIN_PATH_SECRET = 16
_DELIVERY_HEADERS: Mapping[str, str] = {"standard": "webhook-id", "github": "x-github-delivery"}
_DELIVERY_PATHS: Mapping[str, str] = {"slack": "event_id", "stripe": "id"}
_OTHER_DELIVERY_HEADERS = ("webhook-id", "idempotency-key")
_SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie"})
_REFUSED = "no trigger accepts this request: check its address, its secret or signature, and its time"


class Delivery(Struct, frozen=True):
    """A request that its sender has signed."""

    trigger: str
    headers: Mapping[str, str]
    body: bytes


class TriggerOutcome(Struct, frozen=True):
    """What became of a request."""

    status: Literal["accepted", "sent", "ignored", "challenge"]
    """`sent`: to the turns that wait for the event; `ignored`: the filter of the trigger excludes it; `challenge`:
    Slack checks the address."""
    session: SessionId | None = None
    turn: int | None = None
    repeated: bool = False
    """The event was received before, and this is its turn."""
    challenge: str = ""
    answered: int = 0
    """How many waits an event that was sent has ended."""
    running: RunningTurn | None = None
    """The turn, if it was accepted now."""


class _Trigger:
    """A trigger with its secrets and parsed templates."""

    def __init__(self, name: str, settings: TriggerSettings) -> None:
        self.name = name
        self.settings = settings
        variables = [one for one in (settings.secret_env, settings.previous_secret_env) if one]
        named = {variable: os.environ.get(variable, "") for variable in variables}
        self.missing = [variable for variable, secret in named.items() if not secret]
        self.kind: SignatureKind | None = None if settings.verify == "path" else settings.verify
        self.keys: list[bytes] = []
        for variable, secret in named.items():
            if secret and self.kind is None and len(secret) < _MIN_PATH_SECRET:
                raise ConfigError(f"{variable} is part of an address: give it at least {_MIN_PATH_SECRET} characters")
            if secret:
                self.keys.append(signing_key(self.kind or "hmac", secret, variable))
        self.message: Template = parse_template(settings.message)
        self.session: Template = parse_template(settings.session)
        self.where = {
            parse_path(path): allowed if isinstance(allowed, list) else [allowed]
            for path, allowed in settings.where.items()
        }
        self._recent: deque[float] = deque()

    def delivery_id(self, headers: Mapping[str, str], payload: Any, body: bytes) -> str:
        """Return what identifies the event, or a hash of the body if the sender names nothing."""
        chosen, verify = self.settings.delivery_id, self.settings.verify
        if chosen.startswith("header:"):
            found: Any = headers.get(chosen.removeprefix("header:").lower())
        elif path := chosen or _DELIVERY_PATHS.get(verify, ""):
            try:
                found = Values(payload, headers, self.name, "").find(parse_path(path))
            except InvalidPayload:
                found = None
        else:
            names = [_DELIVERY_HEADERS[verify]] if verify in _DELIVERY_HEADERS else _OTHER_DELIVERY_HEADERS
            found = next((headers[name] for name in names if headers.get(name)), None)
        if chosen and (found is None or found == "" or isinstance(found, dict | list)):
            raise InvalidPayload(f"the request has no {chosen}, which identifies the event")
        return hashlib.sha256(body).hexdigest() if found in (None, "") else str(found)

    def count(self) -> None:
        """Count a new event of this process. Raise `TooManyEvents` above the limit."""
        now, recent = time.monotonic(), self._recent
        while recent and recent[0] <= now - _MINUTE_S:
            recent.popleft()
        if len(recent) >= self.settings.limit_per_minute:
            limit = self.settings.limit_per_minute
            wait_s = math.ceil(recent[0] + _MINUTE_S - now)
            message = f"the trigger accepts {limit} new events a minute: repeat it later (limit_per_minute)"
            raise TooManyEvents(message, retry_after_s=wait_s)
        recent.append(now)


class Triggers:
    """The triggers of one app: each turns the requests of a sender into messages."""

    def __init__(
        self,
        settings: Mapping[str, TriggerSettings],
        store: Store,
        app_name: str,
        accept: Callable[..., Awaitable[RunningTurn]],
        send_event: Callable[..., Awaitable[SentEvent]],
    ) -> None:
        """`accept` and `send_event` are those of the runtime."""
        self._store = store
        self._app_name = app_name
        self._accept = accept
        self._send_event = send_event
        self._triggers = {name: _Trigger(name, one) for name, one in settings.items()}
        self._headers = {signature_header(one.kind, one.settings.header) for one in self._triggers.values() if one.kind}
        self._unknown = secrets.token_bytes(32)

    def __len__(self) -> int:
        """The number of triggers."""
        return len(self._triggers)

    def check(self) -> None:
        """Raise `ConfigError` unless the secrets of all triggers are set."""
        for trigger in self._triggers.values():
            for variable in trigger.missing:
                raise ConfigError(f"trigger {trigger.name}: set its secret in the environment variable {variable}")

    @property
    def agents(self) -> Mapping[str, str]:
        """The apps that triggers name, by the names of the triggers."""
        chosen = {name: one.settings.agent for name, one in self._triggers.items()}
        return {name: agent for name, agent in chosen.items() if agent is not None}

    def check_head(self, name: str, headers: Mapping[str, str], path_secret: str = "") -> None:
        """Raise `TriggerRefused` for a request that cannot be valid with any body.

        A wrong name and a wrong secret are refused at the same place, in the same words.
        """
        if path_secret:
            self._check_path_secret(name, path_secret)
        elif not any(headers.get(header) for header in self._headers):
            raise TriggerRefused(_REFUSED)

    def _check_path_secret(self, name: str, path_secret: str) -> None:
        trigger = self._triggers.get(name)
        keys = trigger.keys if trigger and trigger.kind is None else []
        given = path_secret.encode("utf-8", "surrogatepass")
        fits = [hmac.compare_digest(given, key) for key in keys or [self._unknown]]
        if not any(fits) or not keys:
            raise TriggerRefused(_REFUSED)

    def verify(self, name: str, headers: Mapping[str, str], body: bytes, path_secret: str = "") -> Delivery:
        """Return a request that the trigger's sender has made; raise `TriggerRefused` for any other.

        `headers` have names in lower case. Raise `PayloadTooLarge` if a valid request is too large.
        """
        trigger = self._triggers.get(name)
        if path_secret:
            self._check_path_secret(name, path_secret)
        else:
            kind, header, tolerance_s = self._unknown_kind(headers) if trigger is None else _signature_of(trigger)
            keys = trigger.keys if trigger and trigger.kind else []
            is_signed = is_signed_by(
                kind, keys or [self._unknown], headers, body, header=header, tolerance_s=tolerance_s, now=time.time()
            )
            if not (is_signed and keys):
                raise TriggerRefused(_REFUSED)
        assert trigger is not None
        if len(body) > trigger.settings.max_bytes:
            raise PayloadTooLarge(f"the trigger accepts {trigger.settings.max_bytes} bytes (max_bytes)")
        hidden = {*self._headers, *_SECRET_HEADERS}
        return Delivery(name, {key: value for key, value in headers.items() if key not in hidden}, body)

    def _unknown_kind(self, headers: Mapping[str, str]) -> tuple[SignatureKind, str, float]:
        """Return how a request to an unknown trigger is checked: by the signature that it has, as a known one."""
        found = next((header for header in sorted(self._headers) if headers.get(header)), "")
        for trigger in self._triggers.values():
            if trigger.kind and signature_header(trigger.kind, trigger.settings.header) == found:
                return _signature_of(trigger)
        return "hmac", found, 0.0

    async def receive(
        self, name: str, headers: Mapping[str, str], body: bytes, *, path_secret: str = ""
    ) -> TriggerOutcome:
        """Verify a request and accept its event, for servers of your own. Raise `TriggerRefused` for a forged one."""
        lower = {key.lower(): value for key, value in headers.items()}
        return await self.accept(self.verify(name, lower, body, path_secret))

    async def accept(self, delivery: Delivery) -> TriggerOutcome:
        """Start the turn of a verified request, or return that of the same event.

        Raise `InvalidPayload` if it cannot be read or lacks a value, and `TooManyEvents` above the limit.
        """
        trigger = self._triggers[delivery.trigger]
        payload = await _read_payload(delivery)
        checked = Values(payload, delivery.headers, trigger.name, "")
        if trigger.kind == "slack" and checked.fit({("type",): ["url_verification"]}):
            return TriggerOutcome("challenge", challenge=str(checked.find(("challenge",))))
        event_id = trigger.delivery_id(delivery.headers, payload, delivery.body)
        values = Values(payload, delivery.headers, trigger.name, event_id)
        if not values.fit(trigger.where):
            return TriggerOutcome("ignored")
        return await self._start(trigger, event_id, payload, values)

    async def _start(self, trigger: _Trigger, event_id: str, payload: Any, values: Values) -> TriggerOutcome:
        """Send the message of an event, or the event itself to the turns that wait for it."""
        settings = trigger.settings
        key = f"trigger:{trigger.name}:{hashlib.sha256(event_id.encode('utf-8', 'surrogatepass')).hexdigest()}"
        if settings.event:
            return await self._send(settings, key, payload, trigger, values)
        name = SessionId(self._app_name, settings.user_id, fill_id(trigger.session, values))
        if (known := await self._store.read(find_key_of_name, name, key)) is not None:
            return TriggerOutcome("accepted", name, known.turn, repeated=True)
        text = fill_message(trigger.message, values)
        trigger.count()
        # its digest is the key: an event that is sent again may have another body, such as the number of the attempt
        message = SubmittedMessage(text, request=TurnRequest(key, digest=key), may_answer=False)
        running = await self._accept(name.id, message, user_id=name.user_id)
        return TriggerOutcome("accepted", name, running.turn.turn, repeated=running.turn.repeated, running=running)

    async def _send(
        self, settings: TriggerSettings, key: str, payload: Any, trigger: _Trigger, values: Values
    ) -> TriggerOutcome:
        session_id = fill_id(trigger.session, values) if "session" in settings.model_fields_set else None
        if await self._store.read(is_sent, self._app_name, settings.event, key):
            return TriggerOutcome("sent", repeated=True)
        trigger.count()
        sent = await self._send_event(
            settings.event, payload, user_id=settings.user_id, session_id=session_id, idempotency_key=key
        )
        return TriggerOutcome("sent", repeated=sent.repeated, answered=sent.answered)


def _signature_of(trigger: _Trigger) -> tuple[SignatureKind, str, float]:
    return trigger.kind or "hmac", trigger.settings.header, trigger.settings.tolerance_s


async def _read_payload(delivery: Delivery) -> Any:
    """Parse the body of a request: JSON, or a form, whose field `payload` may be JSON."""
    kind = delivery.headers.get("content-type", "").partition(";")[0].strip().lower()
    read = _read_form if kind == "application/x-www-form-urlencoded" else _read_json
    try:
        if len(delivery.body) > _READ_AT_ONCE:
            return await run_in_thread(read, delivery.body)
        return read(delivery.body)
    except TooManyValues as error:
        raise InvalidPayload(str(error)) from error
    except (ValueError, RecursionError) as error:
        raise InvalidPayload("the payload is not JSON") from error


def _read_json(body: bytes) -> Any:
    return read_json(body)


def _read_form(body: bytes) -> Any:
    fields: Sequence[tuple[str, str]] = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=1000)
    form = dict(fields)
    if "payload" not in form:
        return form
    return read_json(form["payload"])
