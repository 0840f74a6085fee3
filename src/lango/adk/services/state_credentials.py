"""Keep the credentials that tools put into the state: encrypted beside the other credentials of the user.

ADK's tools of OpenAPI documents keep their tokens in the state of the session. The stored state says only that there is
one; a turn gets the credential itself, and so do a refresh and a restart.
"""

import time

from google.adk.auth.auth_credential import AuthCredential
from google.adk.events import Event
from google.adk.sessions import Session

from lango.adk.services.credential_secrets import state_credentials
from lango.errors import CredentialKeyError
from lango.sessions import KEPT_IN_STATE, SessionId, is_credential, is_id
from lango.store import Store
from lango.store.credentials import credentials
from lango.store.credentials.credentials import NewCredential
from lango.store.credentials.secret_box import SecretBox


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

    A credential that is there in clear is removed: no tool stores one so, whatever wrote it.
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
