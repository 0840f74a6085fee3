"""Run `lango keys`: add, list and revoke API keys."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lango.cli.options import Json, StoreOptions, id_by_prefix, with_shared_options
from lango.cli.tables import print_values, struct_json
from lango.cli.terminal_text import format_time
from lango.errors import UsageError

if TYPE_CHECKING:
    from lango.runtime.access import ApiKey
    from lango.runtime.stored_data import StoredData

app = typer.Typer(help="API keys of the server: add, list, revoke.", no_args_is_help=True)

User = Annotated[str, typer.Option("--user", help="The owner of the key and of its sessions.")]
RequestLimit = Annotated[int | None, typer.Option("--requests-per-minute", min=1, help="Limit of requests.")]
TokenLimit = Annotated[int | None, typer.Option("--tokens-per-day", min=1, help="Limit of tokens.")]


@app.command()
@with_shared_options
def add(
    chosen: StoreOptions,
    user: User = "user",
    requests_per_minute: RequestLimit = None,
    tokens_per_day: TokenLimit = None,
) -> None:
    """Create a key and print it: it is shown once, and stored only as a hash."""
    limits = {"requests_per_minute": requests_per_minute, "tokens_per_day": tokens_per_day}
    print(chosen.run(lambda data: data.keys.add(user, **limits)))


@app.command("list")
@with_shared_options
def list_keys(chosen: StoreOptions, as_json: Json = False) -> None:
    """List keys by id, including revoked ones."""
    found = chosen.run(lambda data: data.keys.list())
    print_values(found, struct_json, row=_key_row, as_json=as_json, empty="no keys")


@app.command()
@with_shared_options
def revoke(
    chosen: StoreOptions,
    key_id: Annotated[str, typer.Argument(help="The key's id, as `lango keys list` shows it, or its beginning.")],
) -> None:
    """Revoke a key."""

    async def revoke_found(data: "StoredData") -> str | None:
        valid = [key.id for key in await data.keys.list() if key.revoked_at is None]
        found = id_by_prefix(key_id, valid, "keys")
        return found if await data.keys.revoke(found) else None

    if (revoked := chosen.run(revoke_found)) is None:
        raise UsageError(f"there is no key {key_id!r} to revoke; `lango keys list` lists them")
    print(f"revoked {revoked}")


def _key_row(key: "ApiKey") -> dict[str, Any]:
    limits = [
        f"{key.requests_per_minute} requests a minute" if key.requests_per_minute else "",
        f"{key.tokens_per_day} tokens a day" if key.tokens_per_day else "",
        f"revoked {format_time(key.revoked_at)}" if key.revoked_at else "",
    ]
    created = format_time(key.created_at)
    return {"id": key.id, "user": key.user_id, "created": created, "limits": ", ".join(filter(None, limits))}
