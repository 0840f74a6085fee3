"""Run `lango webhooks`: add, list and delete webhooks, and send again what was given up."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lango.cli.options import Json, SessionOptions, with_shared_options
from lango.cli.tables import print_values, struct_json
from lango.errors import UsageError

if TYPE_CHECKING:
    from lango.runtime.stored_data import StoredData
    from lango.runtime.webhooks import AddedWebhook, DeadDelivery, StoredWebhook

app = typer.Typer(help="Addresses that are notified when turns end: add, list, delete, resend.", no_args_is_help=True)

Events = Annotated[str, typer.Option("--events", help="Report turns that end as: done, waiting, failed, cancelled.")]
WebhookId = Annotated[str, typer.Argument(help="The webhook's id, as `lango webhooks list` shows it.")]
_EVENTS = ("done", "waiting", "failed", "cancelled")


@app.command()
@with_shared_options
def add(
    chosen: SessionOptions,
    url: Annotated[str, typer.Argument(help="The address that is notified.")],
    session: Annotated[str | None, typer.Option("--session", "-s", help="Only turns of this session.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="Only turns that this API key started, by its id.")] = None,
    events: Events = "done,waiting,failed",
    include_text: Annotated[bool, typer.Option("--include-text", help="Send the text of the answer, too.")] = False,
    secret_env: Annotated[
        str | None,
        typer.Option("--secret-env", help="The server's variable of the secret, instead of a stored one."),
    ] = None,
) -> None:
    """Add a webhook, and print its id and the secret that signs its requests: it is shown once, stored encrypted."""
    named: Any = [name.strip() for name in events.split(",") if name.strip()]
    if not named or not set(named) <= set(_EVENTS):
        raise UsageError(f"--events takes some of {', '.join(_EVENTS)}, with commas between them")
    options: dict[str, Any] = {"events": named, "quota_id": key, "include_text": include_text, "secret_env": secret_env}

    async def run(data: "StoredData") -> "AddedWebhook":
        if session is None:
            return await data.app(chosen.app_name()).webhooks.add(url, **options)
        name = (await chosen.session(data, session)).name
        return await data.app(name.app_name).webhooks.add(url, session_id=name.id, user_id=name.user_id, **options)

    added = chosen.run(run)
    print(f"{added.id} {added.secret}".strip())


@app.command("list")
@with_shared_options
def list_webhooks(chosen: SessionOptions, as_json: Json = False) -> None:
    """List the webhooks of the app, with those of the settings, and how much is still to be sent to each."""
    found = chosen.run(lambda data: data.app(chosen.app_name()).webhooks.list())
    print_values(found, struct_json, row=_webhook_row, as_json=as_json, empty="no webhooks", cut=("url",))


def _webhook_row(one: "StoredWebhook") -> dict[str, Any]:
    of = one.session_id or one.quota_id or ("settings" if one.from_settings else "every session")
    return {
        "id": one.id,
        "url": one.url,
        "of": of,
        "events": ",".join(one.events),
        "pending": str(one.pending),
        "dead": str(one.dead),
    }


@app.command()
@with_shared_options
def delete(chosen: SessionOptions, webhook_id: WebhookId) -> None:
    """Delete a webhook, with what was still to be sent to it; one of the settings returns with the next server."""
    if not chosen.run(lambda data: data.app(chosen.app_name()).webhooks.delete(webhook_id)):
        raise UsageError(f"there is no webhook {webhook_id!r}; `lango webhooks list` lists them")
    print(f"deleted {webhook_id}")


@app.command()
@with_shared_options
def dead(chosen: SessionOptions, as_json: Json = False) -> None:
    """List what could not be sent within a day, the newest first, and why."""
    found = chosen.run(lambda data: data.app(chosen.app_name()).webhooks.dead())
    print_values(
        found, struct_json, row=_dead_row, as_json=as_json, empty="nothing was given up", cut=("url", "problem")
    )


def _dead_row(one: "DeadDelivery") -> dict[str, Any]:
    return {name: value for name, value in struct_json(one).items() if name not in ("user_id", "created_at")}


@app.command()
@with_shared_options
def resend(
    chosen: SessionOptions,
    delivery_id: Annotated[str | None, typer.Argument(help="Of `lango webhooks dead`; by default all.")] = None,
) -> None:
    """Send what was given up again, for another day; a running server sends it."""

    async def run(data: "StoredData") -> int:
        webhooks = data.app(chosen.app_name()).webhooks
        ids = [one.id for one in await webhooks.dead(limit=100_000)] if delivery_id is None else [delivery_id]
        return sum([await webhooks.resend(one) for one in ids])

    count = chosen.run(run)
    if delivery_id is not None and not count:
        raise UsageError(f"no delivery {delivery_id!r} was given up; `lango webhooks dead` lists them")
    print(f"{count} to be sent again")
