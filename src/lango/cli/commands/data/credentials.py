"""Run `lango credentials`: list and delete the credentials of users, and make or replace the key that encrypts them."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lango.cli.options import Json, SessionOptions, StoreOptions, id_by_prefix, with_shared_options
from lango.cli.tables import print_values, struct_json
from lango.cli.terminal_text import counted, format_time, printable
from lango.errors import UsageError

if TYPE_CHECKING:
    from lango.runtime.stored_data import Owned, StoredData

app = typer.Typer(help="Credentials that users gave to tools: list, delete, encrypt.", no_args_is_help=True)


@app.command("list")
@with_shared_options
def list_credentials(chosen: SessionOptions, as_json: Json = False) -> None:
    """List credentials, without their secrets."""
    found = chosen.run(lambda data: data.credentials())
    shown = [one for one in found if chosen.include(one.app_name, one.user_id)]
    print_values(shown, _as_json, row=_as_row, as_json=as_json, empty="no credentials")


@app.command()
@with_shared_options
def delete(
    chosen: SessionOptions,
    key: Annotated[
        str, typer.Argument(help="The credential, as `lango credentials list` shows it, or its beginning.")
    ] = "",
    every: Annotated[bool, typer.Option("--all", help="Delete every credential of the user in --user.")] = False,
) -> None:
    """Delete a credential, or every one of a user: the next use of a tool asks the user again."""
    if bool(key) == every:
        raise UsageError("name a credential, or use --all, and not both")
    if every and chosen.user is None:
        raise UsageError("--all deletes every credential of one user: select the user with --user")

    async def delete_found(data: "StoredData") -> list[str]:
        stored = [one for one in await data.credentials() if chosen.include(one.app_name, one.user_id)]
        wanted = key and id_by_prefix(key, [one.credential.key for one in stored], "credentials")
        found = [one for one in stored if every or one.credential.key == wanted]
        if not found and not every:
            raise UsageError(f"there is no credential {key!r}; `lango credentials list` lists them")
        if len(found) > 1 and not every:
            raise UsageError(f"{len(found)} users have a credential {key!r}: select one with --app and --user")
        for one in found:
            await data.app(one.app_name).credentials.delete(one.credential.key, user_id=one.user_id)
        return [one.credential.key for one in found]

    deleted = chosen.run(delete_found)
    count = f"{counted(len(deleted), 'credential')} of {chosen.user}"
    print(f"deleted {count if every else printable(deleted[0])}")


@app.command("key")
def make_key() -> None:
    """Print a new key for LANGO_CREDENTIAL_KEY."""
    from lango.runtime.stored_data import new_credential_key

    print(new_credential_key())


@app.command()
@with_shared_options
def rotate(chosen: StoreOptions) -> None:
    """Encrypt every credential again, with the first key of LANGO_CREDENTIAL_KEY."""
    count = chosen.run(lambda data: data.encrypt_again())
    print(f"encrypted {counted(count, 'credential')} with the first key")


def _as_json(one: "Owned") -> dict[str, Any]:
    return {"app": one.app_name, "user": one.user_id} | struct_json(one.credential)


def _as_row(one: "Owned") -> dict[str, Any]:
    credential = one.credential
    until = format_time(credential.expires_at) if credential.expires_at else ""
    return {
        "key": credential.key,
        "user": one.user_id,
        "app": one.app_name,
        "kind": credential.kind,
        "for": credential.label or ", ".join(credential.scopes),
        "token expires": f"{until}, refreshed when used" if until and credential.refreshable else until,
    }
