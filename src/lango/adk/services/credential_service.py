"""Store ADK credentials in SQL, encrypted: ADK's credential service on the Lango store.

ADK's tools of OpenAPI documents keep their tokens in the state of the session. They are stored with the other
credentials of the user. The stored state says only that there is one; a turn gets the credential itself, and so do a
refresh and a restart.
"""

import time

from google.adk.agents.callback_context import CallbackContext
from google.adk.auth.auth_credential import AuthCredential
from google.adk.auth.auth_tool import AuthConfig
from google.adk.auth.credential_service.base_credential_service import BaseCredentialService
from google.adk.events import Event
from google.adk.sessions import Session
from typing_extensions import override

from lango.adk.services.credential_secrets import state_credentials
from lango.adk.services.stored_service import StoredService
from lango.errors import CredentialKeyError
from lango.sessions import KEPT_IN_STATE, SessionId, is_credential, is_id
from lango.store import Store
from lango.store.credentials import credentials
from lango.store.credentials.credentials import NewCredential, StoredCredential
from lango.store.credentials.secret_box import SecretBox

_LABEL_LENGTH = 200


class SqlCredentialService(StoredService, BaseCredentialService):
    """Stores the credentials of users in SQL for any ADK `Runner`: encrypted, per app and user, across processes.

    They are encrypted with a key from the environment variable `LANGO_CREDENTIAL_KEY`, or with `box`. The client secret
    of an OAuth application is not stored: ADK takes it from the tool. Raise `CredentialKeyError` if there is no key, or
    if none of the keys fits.
    """

    def __init__(self, url: str, *, store: Store | None = None, box: SecretBox | None = None) -> None:
        # not the constructor of the base class: all that it does is to warn that it is experimental
        self._store = store or Store(url)
        self._box = box or SecretBox.from_environment()

    @override
    async def load_credential(
        self, auth_config: AuthConfig, callback_context: CallbackContext
    ) -> AuthCredential | None:
        app_name, user_id, key = _name(auth_config, callback_context)
        sealed = await self._store.read(credentials.load_credential, app_name, user_id, key)
        if sealed is None:
            return None
        credential = AuthCredential.model_validate(self._box.open(sealed, "credential", app_name, user_id, key))
        raw = auth_config.raw_auth_credential
        if credential.oauth2 is not None and raw is not None and raw.oauth2 is not None:
            credential.oauth2.client_secret = raw.oauth2.client_secret
        return credential

    @override
    async def save_credential(self, auth_config: AuthConfig, callback_context: CallbackContext) -> None:
        """Save the exchanged credential for the current user; without one, delete what is stored."""
        app_name, user_id, key = _name(auth_config, callback_context)
        credential = auth_config.exchanged_auth_credential
        if credential is None:
            await self._store.write(credentials.delete_credential, app_name, user_id, key)
            return
        members = credential.model_dump(mode="json", exclude_none=True)
        if credential.oauth2 is not None:
            members["oauth2"].pop("client_secret", None)
        sealed = self._box.seal(members, "credential", app_name, user_id, key)
        new = stored_credential(key, credential, sealed, scopes=_scopes(auth_config), label=_label(auth_config))
        await self._store.write(credentials.save_credential, app_name, user_id, new, time.time())

    async def list_credentials(self, *, app_name: str, user_id: str) -> list[StoredCredential]:
        """List the credentials of a user, without their secrets."""
        return await self._store.read(credentials.list_credentials, app_name, user_id)

    async def delete_credential(self, key: str, *, app_name: str, user_id: str) -> bool:
        """Delete a credential of a user; return whether there was one."""
        return await self._store.write(credentials.delete_credential, app_name, user_id, key)


def _name(auth_config: AuthConfig, context: CallbackContext) -> tuple[str, str, str]:
    return context.session.app_name, context.user_id, auth_config.credential_key or ""


def _scopes(auth_config: AuthConfig) -> list[str]:
    """Return the scopes that were asked for."""
    scheme = auth_config.auth_scheme
    listed = getattr(scheme, "scopes", None)
    if isinstance(listed, list | tuple):
        return [str(scope) for scope in listed]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    flows = getattr(scheme, "flows", None)
    for name in ("authorizationCode", "clientCredentials", "implicit", "password"):
        flow = getattr(flows, name, None)
        if flow is not None and flow.scopes:
            return [*flow.scopes]
    return []


def _label(auth_config: AuthConfig) -> str:
    """Return what a credential is for: the description of its scheme, or the address that grants it."""
    scheme = auth_config.auth_scheme
    flows = getattr(scheme, "flows", None)
    flow = getattr(flows, "authorizationCode", None) or getattr(flows, "clientCredentials", None)
    address = getattr(flow, "tokenUrl", None) or getattr(scheme, "token_endpoint", None) or ""
    return (getattr(scheme, "description", None) or str(address))[:_LABEL_LENGTH]


# -- credentials in the state ------------------------------------------------------------------------------------------


async def keep_state_credentials(store: Store, box: SecretBox, name: SessionId, event: Event) -> frozenset[str]:
    """Store the credentials that an event puts into the state; return their names in the state.

    Without a key to encrypt them, or under a name that cannot be stored, they last until the turn has ended.
    """
    kept: set[str] = set()
    for state_name, credential in state_credentials(event.actions).items():
        key = _key(state_name)
        if not is_id(key):
            continue
        try:
            members = credential.model_dump(mode="json", exclude_none=True)
            sealed = box.seal(members, "credential", name.app_name, name.user_id, key)
        except CredentialKeyError:
            continue
        new = stored_credential(key, credential, sealed, label="kept by a tool in the state of a session")
        await store.write(credentials.save_credential, name.app_name, name.user_id, new, time.time())
        kept.add(state_name)
    return frozenset(kept)


async def show_state_credentials(store: Store, box: SecretBox, session: Session) -> None:
    """Put the credentials that tools keep into the state of a session that a turn has loaded, unless it was deleted.

    A credential that is there in clear text is removed: no tool stores one that way.
    """
    for state_name in [name for name, value in session.state.items() if is_credential(value)]:
        del session.state[state_name]
    for state_name in [name for name, value in session.state.items() if value == KEPT_IN_STATE]:
        key = _key(state_name)
        sealed = await store.read(credentials.load_credential, session.app_name, session.user_id, key)
        purpose = "credential", session.app_name, session.user_id, key
        session.state[state_name] = box.open(sealed, *purpose) if sealed is not None else None


def stored_credential(
    key: str, credential: AuthCredential, sealed: str, *, scopes: list[str] | None = None, label: str = ""
) -> NewCredential:
    """Return a credential as it is stored, with what may be shown of it."""
    oauth2 = credential.oauth2
    return NewCredential(
        key,
        credential.auth_type.value,
        sealed,
        scopes or [],
        label,
        float(oauth2.expires_at) if oauth2 is not None and oauth2.expires_at else None,
        refreshable=bool(oauth2 is not None and oauth2.refresh_token),
    )


def _key(state_name: str) -> str:
    """Return the name of a credential in the store: only the state's own name leads to it."""
    return f"state:{state_name}"
