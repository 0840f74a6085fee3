"""Send the reports of webhooks: any process sends any row, one at a time, until it is received or a day old.

A row that was committed is sent at least once, with the same `webhook-id` each time. Only public addresses are reached:
the address is checked when it is connected to, and no redirect is followed.
"""

import asyncio
import json
import logging
import os
import random
import ssl
import time
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import httpcore
from msgspec import Struct

from lango.errors import BlockedAddress, ConfigError, StoreError, ToolError
from lango.providers.sdk.error_translation import parse_retry_after
from lango.runtime.webhooks import TASK_KEY_PREFIX, TASK_MEMBER, TOKEN_HEADER
from lango.store import Store
from lango.store.credentials.secret_box import SecretBox
from lango.store.turns.client_requests import find_key_of_session
from lango.store.turns.turns import TurnResult, read_turn, read_turn_texts
from lango.store.webhooks.deliveries import DueDelivery, finish_delivery, lease_due, postpone_delivery, read_turn_waits
from lango.tools.builtin.public_fetch import PublicNetworkBackend, parse_url
from lango.webhooks.signatures import sign, signing_key

_TIMEOUT_S = 15.0
_LEASE_S = 30.0
"""Longer than a request takes, so that no two processes send a row at once."""
_AT_ONCE = 16
_FIRST_DELAY_S = 5.0
_GIVE_UP_S = 86_400.0
_CLOSE_S = 5.0
_MAX_TEXT = 100_000
_GONE = 410
_log = logging.getLogger("lango.webhooks")


class _Answer(Struct, frozen=True):
    """What became of an attempt."""

    problem: str = ""
    """Empty: it was received."""
    is_final: bool = False
    """It makes no sense to send it again."""
    retry_after_s: float = 0.0


class WebhookSender:
    """Sends the deliveries of a store."""

    def __init__(self, store: Store, allow: Collection[str]) -> None:
        """`allow` are addresses `address:port` that need not be public."""
        self._store = store
        self._network = PublicNetworkBackend(allow=allow)
        self._tasks: set[asyncio.Task[None]] = set()
        self._tls: ssl.SSLContext | None = None

    async def run_due(self) -> bool:
        """Start to send what is due; return whether more may be due, once another one can be sent."""
        if is_more := await self._start_due():
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        return is_more

    async def close(self) -> None:
        """Send for a few seconds what this process stored last; another process sends the rest."""
        with suppress(TimeoutError, StoreError):
            async with asyncio.timeout(_CLOSE_S):
                await self._start_due()
                while self._tasks:
                    await asyncio.wait(self._tasks)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _start_due(self) -> bool:
        """Start to send what is due; return whether more may be due than this process sends at once."""
        free = _AT_ONCE - len(self._tasks)
        for due in (await self._store.write(lease_due, free, _LEASE_S)) if free else ():
            task = asyncio.create_task(self._send(due))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return len(self._tasks) == _AT_ONCE

    async def _send(self, due: DueDelivery) -> None:
        """Send a delivery, and store what became of it."""
        try:
            body = None if due.url is None else await self._body(due)
            answer = _Answer() if due.url is None or body is None else await self._post(due, due.url, body)
            if not answer.problem:
                await self._store.write(finish_delivery, due.session_key, due.id)
                return
            delay_s = None if answer.is_final else next_delay_s(due.attempts, due.age_s, answer.retry_after_s)
            level = logging.WARNING if delay_s is None else logging.INFO
            _log.log(level, "webhook %s did not receive %s: %s", due.webhook_id, due.id, answer.problem)
            await self._store.write(postpone_delivery, due.session_key, due.id, delay_s, answer.problem)
        except StoreError as error:  # the lease ends, and it is sent again
            self._store.outages.warn(f"the delivery of a webhook could not be noted: {error}")
        except Exception:  # noqa: BLE001 - the others are sent
            _log.exception("webhook %s could not be sent", due.webhook_id)

    async def _post(self, due: DueDelivery, url: str, content: dict[str, Any]) -> _Answer:
        """Sign and send the request of a delivery."""
        body = json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
        try:
            key, more = self._secret(due)
        except ConfigError as error:
            return _Answer(str(error))
        headers = more | (sign(key, due.id, int(time.time()), body) if key else {"webhook-id": due.id})
        try:
            address = parse_url(url)
            if self._tls is None and address.scheme == "https":
                self._tls = await asyncio.to_thread(ssl.create_default_context)
            sent = {
                "Host": address.netloc.decode("ascii"),
                "Content-Type": "application/json",
                "Content-Length": str(len(body)),
                "User-Agent": "lango-webhooks",
                **headers,
            }
            async with (
                asyncio.timeout(_TIMEOUT_S),
                # a pool per request: no connection outlives the check of its address
                httpcore.AsyncConnectionPool(ssl_context=self._tls, network_backend=self._network) as pool,
                pool.stream("POST", str(address), headers=[*sent.items()], content=body) as response,
            ):
                return _judge(response)
        except TimeoutError:
            return _Answer(f"no answer within {_TIMEOUT_S:g} s")
        except BlockedAddress:
            return _Answer("its address is not public (setting server.webhook_addresses)")
        except ToolError as error:
            return _Answer(str(error), is_final=True)
        except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError, ssl.SSLError) as error:
            return _Answer(f"no answer: {type(error).__name__}")

    def _secret(self, due: DueDelivery) -> tuple[bytes, dict[str, str]]:
        """Return the key that signs a delivery, and further headers. Raise `ConfigError` if its secret is not here."""
        if due.secret is not None:
            secret = SecretBox.from_environment().open(due.secret, "webhook", due.app_name, due.webhook_id)
            if due.task_id is not None:
                return secret.get(TOKEN_HEADER, "").encode(), secret  # without a token, nothing both sides know signs
            return signing_key("standard", secret, "the secret of the webhook"), {}
        variable = due.secret_env or ""
        secret = os.environ.get(variable, "")
        if not secret:
            raise ConfigError(f"set its secret in the environment variable {variable}")
        return signing_key("standard", secret, variable), {}

    async def _body(self, due: DueDelivery) -> dict[str, Any] | None:
        """Return what is sent: which turn ended how, and its text if that was asked for; or None to send nothing."""
        if due.task_id is not None:
            return await task_notification(self._store, due, due.task_id)
        result = TurnResult.decode(due.extra)
        data: dict[str, Any] = {
            "app": due.app_name,
            "user_id": due.user_id,
            "session_id": due.session_id,
            "turn": due.turn,
            "status": due.event,
        }
        if due.event == "waiting":
            found = await self._store.read(read_turn_waits, due.session_key, due.turn)
            data["waits"] = [{"id": id_, "kind": kind} for id_, kind in found]
        if due.event == "failed":
            data["error"] = result.error.type if result.error else "TurnFailed"
        if due.include_text and due.event == "failed" and result.error:
            data["text"] = result.error.message[:_MAX_TEXT]
        elif due.include_text:
            texts = await self._store.read(read_turn_texts, due.session_key, due.turn)
            data["text"] = texts[-1].message.content[:_MAX_TEXT] if texts and texts[-1].message else ""
        ended_at = datetime.fromtimestamp(due.ended_at or 0.0, UTC)
        return {"type": f"turn.{due.event}", "timestamp": ended_at.isoformat(), "data": data}


def next_delay_s(attempts: int, age_s: float, retry_after_s: float = 0.0) -> float | None:
    """Return in how many seconds to send again after a number of attempts, or None to give up: it is a day old.

    The delay doubles each time, with up to a tenth more, so that not all are sent at once after an outage.
    """
    if age_s >= _GIVE_UP_S:
        return None
    delay_s = _FIRST_DELAY_S * 2 ** min(attempts - 1, 20) * random.uniform(1.0, 1.1)  # noqa: S311 - no secret
    return min(max(delay_s, retry_after_s), max(_FIRST_DELAY_S, _GIVE_UP_S - age_s))


def _judge(response: httpcore.Response) -> _Answer:
    """Return what an answer means. Its body is not read."""
    if 200 <= response.status < 300:
        return _Answer()
    if 300 <= response.status < 400:
        return _Answer(f"HTTP {response.status}: redirects are not followed")
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
    wait_s = parse_retry_after(headers) or 0.0
    return _Answer(f"HTTP {response.status}", is_final=response.status == _GONE, retry_after_s=wait_s)


# -- tasks of A2A ------------------------------------------------------------------------------------------------------

_STATES = {"done": "COMPLETED", "failed": "FAILED", "cancelled": "CANCELED"}
_FROM_ELSEWHERE = ("timer", "event", "long_running_result")
"""The kinds of waits that no message of the client answers."""


async def task_notification(store: Store, due: DueDelivery, task_id: str) -> dict[str, Any] | None:
    """Return the update of a task's status, or None if the turn that ended belongs to another task."""
    if not await _belongs_to(store, due, task_id):
        return None
    ended_at = datetime.fromtimestamp(due.ended_at or 0.0, UTC).isoformat().replace("+00:00", "Z")
    status = {"state": f"TASK_STATE_{await _state(store, due)}", "timestamp": ended_at}
    return {"statusUpdate": {"taskId": task_id, "contextId": due.session_id, "status": status}}


async def _belongs_to(store: Store, due: DueDelivery, task_id: str) -> bool:
    row = await store.read(read_turn, due.session_key, due.turn)
    if row is None or (row.client_request or {}).get(TASK_MEMBER) == task_id:
        return row is not None
    known = await store.read(find_key_of_session, due.session_key, f"{TASK_KEY_PREFIX}{task_id}")
    first = await store.read(read_turn, due.session_key, known.turn) if known else None
    return first is not None and first.invocation_id == row.invocation_id


async def _state(store: Store, due: DueDelivery) -> str:
    if due.event != "waiting":
        return _STATES[due.event]
    waits = await store.read(read_turn_waits, due.session_key, due.turn)
    kinds = {kind for _, kind in waits if kind not in _FROM_ELSEWHERE}
    if not kinds:
        return "WORKING"
    return "AUTH_REQUIRED" if kinds == {"credential"} else "INPUT_REQUIRED"
