"""Keep secrets out of stored events: what ADK puts of credentials into calls, actions and state.

ADK's request for a credential holds the address that the user opens, and what it was made with. The store keeps the
address in the message, and the PKCE verifier encrypted in its own row. An answer is stored without the credential;
the row of its wait keeps that, encrypted, until its turn has ended.
"""

import logging
from collections.abc import Collection, Mapping
from typing import Any, cast

from google.adk.auth.auth_credential import AuthCredential
from google.adk.auth.auth_tool import AuthConfig
from google.adk.events import Event, EventActions
from google.genai import types
from pydantic import BaseModel
from typing_extensions import override

from lango.json_values import as_object
from lango.sessions import CREDENTIAL_CALL, KEPT_IN_STATE, TEMP_PREFIX, SessionId, is_credential
from lango.store.codec.records import RequestSecret
from lango.store.credentials.secret_box import SecretBox
from lango.store.waits.waits import state_hash

GIVEN = {"status": "given"}
"""What a message shows of a credential that the user gave."""

_CREDENTIALS = ("rawAuthCredential", "raw_auth_credential", "exchangedAuthCredential", "exchanged_auth_credential")
_SHOWN_OF_OAUTH2 = {
    name
    for pair in (
        ("client_id", "clientId"),
        ("auth_uri", "authUri"),
        ("redirect_uri", "redirectUri"),
        ("code_challenge_method", "codeChallengeMethod"),
        ("token_endpoint_auth_method", "tokenEndpointAuthMethod"),
        ("state",),
    )
    for name in pair
}
"""What of OAuth is in the address that the user opens anyway, or is not secret; under ADK's two kinds of names."""
_SEALED = "lango_sealed"
_VERIFIER_STATE = "adk_oauth_credential:"  # ADK's nodes keep the PKCE verifier in the session's state
_PASSING_STATE = (TEMP_PREFIX, _VERIFIER_STATE)
_JSON: dict[str, Any] = {"mode": "json", "exclude_none": True, "by_alias": True}


def request_purpose(name: SessionId, call_id: str) -> tuple[str, ...]:
    """Return what the secrets of a credential request are encrypted for: they are of no use in another session."""
    return "credential request", name.app_name, name.user_id, name.id, call_id


class _WithoutAnswers(logging.Filter):
    """Drops the debug lines of ADK that quote what a person answered: it may be a key."""

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        return "resume_inputs" not in str(record.msg)


def keep_answers_out_of_logs() -> None:
    """Keep what people answered out of ADK's debug log."""
    logger = logging.getLogger("google_adk.google.adk.workflow._node_runner")
    if not any(isinstance(known, _WithoutAnswers) for known in logger.filters):
        logger.addFilter(_WithoutAnswers())


def requests_credential(item: object) -> bool:
    """Whether this is an event that requests a credential."""
    return isinstance(item, Event) and any(call.name == CREDENTIAL_CALL for call in item.get_function_calls())


def holds_credentials(event: Event) -> bool:
    """Whether an event has a part that may hold secrets of credentials."""
    actions = event.actions
    if actions.requested_auth_configs or any(map(_is_credential, actions.state_delta.values())):
        return True
    parts = (event.content and event.content.parts) or ()
    return any(
        (part.function_call is not None and part.function_call.name == CREDENTIAL_CALL)
        or (part.function_response is not None and part.function_response.name == CREDENTIAL_CALL)
        for part in parts
    )


def without_secrets(
    event: Event, name: SessionId, box: SecretBox, kept_in_state: Collection[str] = ()
) -> tuple[Event, dict[str, RequestSecret]]:
    """Return an event as it is stored, and what is kept apart from it, by the ids of its credential requests.

    `kept_in_state` are the names in the state of credentials that are stored.
    """
    kept: dict[str, RequestSecret] = {}
    stored = event.model_copy()
    if event.content is not None:
        parts = [_stored_part(part, event, name, box, kept) for part in event.content.parts or ()]
        stored.content = types.Content(role=event.content.role, parts=parts)
    stored.actions = public_actions(event.actions)
    stored.actions.state_delta |= dict.fromkeys(kept_in_state, KEPT_IN_STATE)
    return stored, kept


def state_credentials(actions: EventActions) -> dict[str, AuthCredential]:
    """Return the credentials that tools put into the state for later turns, by their names in it."""
    return {
        name: AuthCredential.model_validate(_to_json(value))
        for name, value in actions.state_delta.items()
        if _is_credential(value) and not isinstance(value, AuthConfig) and not name.startswith(_PASSING_STATE)
    }


def seal_actions(actions: EventActions, box: SecretBox, call_id: str) -> dict[str, Any]:
    """Return the actions of a tool as JSON for the tool journal, with its credentials encrypted."""
    members = actions.model_dump(mode="json", exclude_defaults=True)
    for name, value in actions.state_delta.items():
        if _is_credential(value):
            sealed = box.seal(_to_json(value), "tool journal", call_id)
            members["state_delta"][name] = {_SEALED: sealed}
    return members


def open_actions(members: Mapping[str, Any], box: SecretBox, call_id: str) -> Mapping[str, Any]:
    """Return actions of the tool journal with their credentials decrypted."""
    delta = as_object(members.get("state_delta"))
    sealed = {name: as_object(value)[_SEALED] for name, value in delta.items() if _SEALED in as_object(value)}
    if not sealed:
        return members
    opened = {name: box.open(secret, "tool journal", call_id) for name, secret in sealed.items()}
    return {**members, "state_delta": delta | opened}


def _stored_part(
    part: types.Part, event: Event, name: SessionId, box: SecretBox, kept: dict[str, RequestSecret]
) -> types.Part:
    call, result = part.function_call, part.function_response
    if call is not None and call.name == CREDENTIAL_CALL:
        args = dict(call.args or {})
        config = args.get("authConfig", args.get("auth_config"))
        if isinstance(config, dict):
            config = cast("dict[str, Any]", config)
            kept[call.id or ""] = _request_secret(call.id or "", config, event, name, box)
            args["authConfig"] = _without_secrets(config)
        return types.Part(function_call=types.FunctionCall(id=call.id, name=call.name, args=args))
    if result is not None and result.name == CREDENTIAL_CALL:
        response = result.response or {}
        shown = response if response.keys() <= {"error"} else GIVEN
        return types.Part(function_response=types.FunctionResponse(id=result.id, name=result.name, response=shown))
    return part


def _request_secret(
    call_id: str, config: dict[str, Any], event: Event, name: SessionId, box: SecretBox
) -> RequestSecret:
    """Return what is kept of a credential request. Raise `CredentialKeyError` if there is no key to encrypt it."""
    box.check()  # also without a verifier: the answer will have to be encrypted
    oauth2 = as_object(as_object(config.get("exchangedAuthCredential")).get("oauth2"))
    verifier = oauth2.get("codeVerifier") or oauth2.get("code_verifier")
    in_state = event.actions.state_delta.get(_VERIFIER_STATE + call_id)
    if verifier is None and _is_credential(in_state):
        kept_by_node = AuthCredential.model_validate(_to_json(in_state)).oauth2
        verifier = kept_by_node.code_verifier if kept_by_node else None
    state = oauth2.get("state")
    sealed = box.seal({"code_verifier": verifier}, *request_purpose(name, call_id)) if verifier else None
    return RequestSecret(state_hash(state) if isinstance(state, str) and state else None, sealed)


def public_actions(actions: EventActions) -> EventActions:
    """Return the actions of an event without the secrets of credentials."""
    stored = actions.model_copy()
    stored.requested_auth_configs = {
        call_id: AuthConfig.model_validate(_without_secrets(config.model_dump(**_JSON)))
        for call_id, config in actions.requested_auth_configs.items()
    }
    stored.state_delta = {name: None if _is_credential(value) else value for name, value in actions.state_delta.items()}
    return stored


def _without_secrets(config: dict[str, Any]) -> dict[str, Any]:
    """Return an authentication configuration as JSON without anything secret in its credentials."""
    return {
        name: public_credential(value) if name in _CREDENTIALS and value else value for name, value in config.items()
    }


def public_credential(credential: dict[str, Any]) -> dict[str, Any]:
    """Return the type of a credential, and what of OAuth is in the address that the user opens anyway."""
    shown = {name: credential[name] for name in ("authType", "auth_type") if name in credential}
    if oauth2 := as_object(credential.get("oauth2")):
        shown["oauth2"] = {name: value for name, value in oauth2.items() if name in _SHOWN_OF_OAUTH2}
    return shown


def _is_credential(value: Any) -> bool:
    """Whether a value of the state is a credential of ADK, as an object or as JSON."""
    return isinstance(value, AuthCredential | AuthConfig) or is_credential(value)


def _to_json(value: Any) -> dict[str, Any]:
    return value.model_dump(**_JSON) if isinstance(value, BaseModel) else cast("dict[str, Any]", value)
