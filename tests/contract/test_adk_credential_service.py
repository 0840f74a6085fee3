"""ADK's contract for a credential service, on both databases, and what Lango adds: encryption and deletion."""

from collections.abc import AsyncIterator

import pytest
from fastapi.openapi.models import OAuth2, OAuthFlowAuthorizationCode, OAuthFlows
from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes, OAuth2Auth
from google.adk.auth.auth_tool import AuthConfig
from google.adk.sessions import InMemorySessionService, Session

from lango.adk import SqlCredentialService
from lango.errors import CredentialKeyError
from lango.store.credentials.credentials import replace_secrets
from lango.store.credentials.secret_box import SecretBox, new_key
from lango.store.engine.database import Operation
from tests.agents.parts import rows


@pytest.fixture
def keys() -> list[str]:
    return [new_key(), new_key()]


@pytest.fixture
async def service(store_url: str, keys: list[str]) -> AsyncIterator[SqlCredentialService]:
    async with SqlCredentialService(store_url, box=SecretBox(keys[0])) as opened:
        yield opened


def context(app: str = "app", user: str = "alice", session: str = "s") -> CallbackContext:
    of_session = Session(id=session, app_name=app, user_id=user)
    invocation = InvocationContext(
        invocation_id="i",
        agent=LlmAgent(name="root"),
        session=of_session,
        session_service=InMemorySessionService(),
    )
    return CallbackContext(invocation)


def config(token: str | None = "token-1", key: str = "account", secret: str = "client-secret") -> AuthConfig:
    flow = OAuthFlowAuthorizationCode(
        authorizationUrl="https://a.example", tokenUrl="https://t.example", scopes={"r": ""}
    )
    raw = AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=OAuth2Auth(client_id="c", client_secret=secret))
    given = raw.model_copy(deep=True)
    assert given.oauth2
    given.oauth2.access_token = token
    return AuthConfig(
        auth_scheme=OAuth2(flows=OAuthFlows(authorizationCode=flow)),
        raw_auth_credential=raw,
        exchanged_auth_credential=given if token else None,
        credential_key=key,
    )


async def test_a_credential_that_is_not_there_is_none(service: SqlCredentialService) -> None:
    assert await service.load_credential(config(), context()) is None
    unnamed = config()
    unnamed.credential_key = ""
    assert await service.load_credential(unnamed, context()) is None


async def test_a_saved_credential_comes_back_in_every_session_of_its_user(service: SqlCredentialService) -> None:
    await service.save_credential(config(), context())
    assert await service.load_credential(config(), context(session="another")) == config().exchanged_auth_credential


async def test_a_later_save_replaces_the_credential(service: SqlCredentialService) -> None:
    await service.save_credential(config("token-1"), context())
    await service.save_credential(config("token-2"), context())
    found = await service.load_credential(config(), context())
    assert found
    assert found.oauth2
    assert found.oauth2.access_token == "token-2"


@pytest.mark.parametrize("other", [("other", "alice"), ("app", "bob"), ("other", "bob")])
async def test_other_apps_and_users_have_their_own(service: SqlCredentialService, other: tuple[str, str]) -> None:
    await service.save_credential(config(), context())
    assert await service.load_credential(config(), context(*other)) is None


async def test_names_are_apart(service: SqlCredentialService) -> None:
    await service.save_credential(config("token-1", "one"), context())
    await service.save_credential(config("token-2", "two"), context())
    found = [await service.load_credential(config(key=key), context()) for key in ("one", "two")]
    assert [one.oauth2.access_token for one in found if one and one.oauth2] == ["token-1", "token-2"]


async def test_saving_none_deletes(service: SqlCredentialService) -> None:
    await service.save_credential(config(), context())
    await service.save_credential(config(None), context())
    assert await service.load_credential(config(), context()) is None


async def test_a_credential_is_listed_without_its_secret_and_deleted(service: SqlCredentialService) -> None:
    await service.save_credential(config(), context())
    [found] = await service.list_credentials(app_name="app", user_id="alice")
    assert (found.key, found.kind, found.scopes, found.label) == ("account", "oauth2", ("r",), "https://t.example")
    assert "token-1" not in repr(found)
    assert await service.delete_credential("account", app_name="app", user_id="alice")
    assert not await service.delete_credential("account", app_name="app", user_id="alice")
    assert await service.load_credential(config(), context()) is None


async def test_the_row_holds_no_secret(service: SqlCredentialService) -> None:
    await service.save_credential(config(), context())
    row = repr(await rows(service.store, "SELECT * FROM credentials"))
    assert "token-1" not in row
    assert "client-secret" not in row


async def test_the_secret_of_the_application_comes_from_the_tool(service: SqlCredentialService) -> None:
    await service.save_credential(config(), context())
    found = await service.load_credential(config(secret="replaced"), context())
    assert found
    assert found.oauth2
    assert found.oauth2.client_secret == "replaced"


@pytest.mark.parametrize("wrong", ["", "no key", "another"])
async def test_a_missing_or_wrong_key_is_named(service: SqlCredentialService, wrong: str) -> None:
    await service.save_credential(config(), context())
    box = SecretBox(new_key() if wrong == "another" else wrong)
    with pytest.raises(CredentialKeyError, match="LANGO_CREDENTIAL_KEY"):
        await SqlCredentialService("", store=service.store, box=box).load_credential(config(), context())


async def test_keys_are_rotated(service: SqlCredentialService, keys: list[str]) -> None:
    await service.save_credential(config(), context())
    both = SecretBox(f"{keys[1]}, {keys[0]}")
    assert await service.store.write(replace_secrets, both.rotate) == 1
    new = SqlCredentialService("", store=service.store, box=SecretBox(keys[1]))
    assert await new.load_credential(config(), context()) == config().exchanged_auth_credential


async def test_a_row_of_another_user_cannot_be_used(service: SqlCredentialService) -> None:
    """Copying a row in the database does not give a user the credential of another."""
    await service.save_credential(config("of alice"), context())
    await service.save_credential(config("of bob"), context(user="bob"))

    def swap() -> Operation[None]:
        yield (
            "UPDATE credentials SET secret = (SELECT secret FROM credentials WHERE user_id = 'alice') "
            "WHERE user_id = 'bob'",
            (),
        )

    await service.store.write(swap)
    with pytest.raises(CredentialKeyError, match="another user"):
        await service.load_credential(config(), context(user="bob"))
