"""Check what a person answers to a credential request or an input request, and build the content that brings it.

A credential is an address with an authorization code, a key, or ADK's own JSON. The code is exchanged for a token by
ADK, in the tool, which knows the secret of the OAuth application. A text is an answer to any input: it is the value
itself where the schema accepts a text, else it is read as JSON.
"""

import hmac
import json
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes, HttpAuth, HttpCredentials, OAuth2Auth
from google.adk.auth.auth_tool import AuthConfig
from google.genai import types
from pydantic import ValidationError

from lango.errors import ConfigError, InvalidAnswer, InvalidArguments
from lango.events import to_plain_values
from lango.json_values import as_object
from lango.sessions import INPUT_CALL
from lango.tools.schema_checker import SchemaChecker
from lango.waits import InputWait, QuestionWait

_MAX_CHARACTERS = 16_384
_OAUTH2 = ("oauth2", "openIdConnect")
_KINDS = (*_OAUTH2, "apiKey", "http")
_TYPES = {
    "oauth2": {AuthCredentialTypes.OAUTH2, AuthCredentialTypes.OPEN_ID_CONNECT},
    "openIdConnect": {AuthCredentialTypes.OAUTH2, AuthCredentialTypes.OPEN_ID_CONNECT},
    "apiKey": {AuthCredentialTypes.API_KEY},
    "http": {AuthCredentialTypes.HTTP},
}
"""The types of credentials that answer a request of each kind. A service account is the operator's, never a user's."""
_HOW_TO_OAUTH2 = (
    "open the URL of the request, then send the URL that you are redirected to: it contains a code and a state"
)


def given_credential(kind: str, config: Mapping[str, Any], value: Any, kept: Mapping[str, Any]) -> dict[str, Any]:
    """Return ADK's credential of an answer, as JSON. Raise `InvalidAnswer` if it cannot be used.

    `kind` is the type of the scheme, `config` ADK's configuration without secrets, and `kept` what the address of the
    request was made with.
    """
    if len(str(value)) > _MAX_CHARACTERS:
        raise InvalidAnswer(f"the answer has more than {_MAX_CHARACTERS} characters")
    try:
        credential = _credential(kind, AuthConfig.model_validate(config), value, kept)
    except ValidationError as error:  # its text may quote the secret
        raise InvalidAnswer(f"the answer is not a credential of type {kind}") from error
    return credential.model_dump(mode="json", exclude_none=True, by_alias=True)


def state_of_address(address: str) -> str | None:
    """Return the OAuth state in an address that a user was sent to, or None if it has none."""
    return _query(address).get("state")


def _credential(kind: str, config: AuthConfig, value: Any, kept: Mapping[str, Any]) -> AuthCredential:
    members = cast("dict[str, Any]", value) if isinstance(value, dict) else None
    if kind not in _KINDS:
        return _access_allowed(config, members, value)
    if members is not None and (shaped := _in_adk_shape(members)) is not None:
        _require(shaped.auth_type in _TYPES[kind], f"the answer is not a credential of type {kind}")
        return _from_adk_oauth2(config, shaped, kept) if kind in _OAUTH2 else _from_adk_secret(config, shaped)
    match cast("Any", members or value):
        case {"code": str(code), "state": str(state)} if kind in _OAUTH2:
            return _from_code(config, code, state, kept)
        case str(address) if kind in _OAUTH2:
            return _from_address(config, address.strip(), kept)
        case {"username": str(username), "password": str(password)} if kind == "http":
            return _name_and_password(username, password)
        case str(pair) if kind == "http" and _scheme(config) == "basic":
            username, colon, password = pair.strip().partition(":")
            _require(bool(colon), "send a name and a password: an object with username and password, or name:password")
            return _name_and_password(username, password)
        case str(token) if kind == "http" and token.strip():
            bearer = HttpAuth(scheme=_scheme(config), credentials=HttpCredentials(token=token.strip()))
            return AuthCredential(auth_type=AuthCredentialTypes.HTTP, http=bearer)
        case str(key) if kind == "apiKey" and key.strip():
            return AuthCredential(auth_type=AuthCredentialTypes.API_KEY, api_key=key.strip())
        case _:
            raise InvalidAnswer(_HOW_TO_OAUTH2 if kind in _OAUTH2 else "send the key as a non-empty text")


def _name_and_password(username: str, password: str) -> AuthCredential:
    _require(bool(username and password), "send a name and a password; neither may be empty")
    basic = HttpAuth(scheme="basic", credentials=HttpCredentials(username=username, password=password))
    return AuthCredential(auth_type=AuthCredentialTypes.HTTP, http=basic)


def _scheme(config: AuthConfig) -> str:
    return str(getattr(config.auth_scheme, "scheme", None) or "bearer").lower()


def _in_adk_shape(members: dict[str, Any]) -> AuthCredential | None:
    """Return the credential of ADK's own JSON: a whole configuration, as its clients send it back, or a credential."""
    for name in ("exchangedAuthCredential", "exchanged_auth_credential"):
        if members.get(name):
            return AuthCredential.model_validate(members[name])
    if "authType" in members or "auth_type" in members:
        return AuthCredential.model_validate(members)
    return None


def _access_allowed(config: AuthConfig, members: dict[str, Any] | None, value: Any) -> AuthCredential:
    """Return a credential that says that the user allowed the access, for an auth scheme that the user's code defines.

    The scheme's provider then fetches the real one. Any text says so. If the answer has a state, it must be that of
    the request.
    """
    requested = _requested(config)
    shaped = _in_adk_shape(members) if members is not None else None
    given = (shaped.oauth2 if shaped is not None else None) or OAuth2Auth()
    address = given.auth_response_uri or (value.strip() if isinstance(value, str) else "")
    answer = {"code": given.auth_code, "state": given.state} | (members or {}) | _query(address)
    _require(bool(value), "open the URL of the request, allow access, and send any text")
    _require(not answer.get("error"), f"access was not granted: {str(answer.get('error'))[:200]}")
    if requested.state and answer.get("state"):
        _require_state(requested.state, str(answer["state"]))
    code = answer.get("code")
    update = {"auth_response_uri": address or None, "auth_code": code if isinstance(code, str) else None}
    return AuthCredential(auth_type=_auth_type(config), oauth2=requested.model_copy(update=update))


def _from_adk_secret(config: AuthConfig, shaped: AuthCredential) -> AuthCredential:
    """Return the key, token or password of an answer, without anything else that came with it, such as headers."""
    if shaped.auth_type is AuthCredentialTypes.API_KEY:
        _require(bool(shaped.api_key), "the credential is empty")
        return AuthCredential(auth_type=AuthCredentialTypes.API_KEY, api_key=shaped.api_key)
    given = shaped.http.credentials if shaped.http is not None else HttpCredentials()
    _require(bool(given.token or given.password), "the credential is empty")
    secret = HttpCredentials(username=given.username, password=given.password, token=given.token)
    return AuthCredential(auth_type=AuthCredentialTypes.HTTP, http=HttpAuth(scheme=_scheme(config), credentials=secret))


def _from_adk_oauth2(config: AuthConfig, shaped: AuthCredential, kept: Mapping[str, Any]) -> AuthCredential:
    given = shaped.oauth2
    if given is None:
        raise InvalidAnswer(_HOW_TO_OAUTH2)
    if given.access_token:  # the client has done the exchange itself
        tokens = OAuth2Auth(
            client_id=_requested(config).client_id,
            access_token=given.access_token,
            refresh_token=given.refresh_token,
            id_token=given.id_token,
            expires_at=given.expires_at,
            expires_in=given.expires_in,
        )
        return AuthCredential(auth_type=_auth_type(config), oauth2=tokens)
    if given.auth_response_uri:
        return _from_address(config, given.auth_response_uri, kept)
    return _from_code(config, given.auth_code or "", given.state or "", kept)


def _from_address(config: AuthConfig, address: str, kept: Mapping[str, Any]) -> AuthCredential:
    query = _query(address)
    if error := query.get("error"):
        raise InvalidAnswer(f"access was not granted: {error[:200]}")
    return _from_code(config, query.get("code", ""), query.get("state", ""), kept)


def _from_code(config: AuthConfig, code: str, state: str, kept: Mapping[str, Any]) -> AuthCredential:
    requested = _requested(config)
    _require(bool(code and state), _HOW_TO_OAUTH2)
    expected = requested.state or ""
    _require_state(expected, state)
    oauth2 = OAuth2Auth(
        client_id=requested.client_id,
        redirect_uri=requested.redirect_uri,
        state=expected,
        auth_code=code,
        code_challenge_method=requested.code_challenge_method,
        code_verifier=kept.get("code_verifier"),
        token_endpoint_auth_method=requested.token_endpoint_auth_method,
    )
    return AuthCredential(auth_type=_auth_type(config), oauth2=oauth2)


def _require_state(expected: str, given: str) -> None:
    same = hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode("utf-8", "replace"))
    _require(bool(expected) and same, "the answer belongs to another request: its state does not match")


def _requested(config: AuthConfig) -> OAuth2Auth:
    credential = config.exchanged_auth_credential
    if credential is None or credential.oauth2 is None:
        raise InvalidAnswer("the request has no URL for a user to open")
    return credential.oauth2


def _auth_type(config: AuthConfig) -> AuthCredentialTypes:
    credential = config.exchanged_auth_credential or config.raw_auth_credential
    return credential.auth_type if credential is not None else AuthCredentialTypes.OAUTH2


def _query(address: str) -> dict[str, str]:
    """Return the query of an address; without a question mark, the whole text is read as one."""
    try:
        query = urlsplit(address).query or (address if "=" in address and "/" not in address else "")
        return {name: values[0] for name, values in parse_qs(query, max_num_fields=50).items()}
    except ValueError:
        return {}


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidAnswer(message)


# -- input -------------------------------------------------------------------------------------------------------------

_YES, _NO = ("yes", "y", "true", "1"), ("no", "n", "false", "0")
_BOOLEANS = dict.fromkeys(_YES, True) | dict.fromkeys(_NO, False)
_CONFIRMED = "confirmed"
_ASKED_PAYLOAD = "confirmation_payload"  # where ADK puts it in the payload of the input request
_KEY = "result"  # ADK unwraps an object with this key alone, and parses a text in it as JSON


def checked_value(wait: InputWait | QuestionWait, value: Any) -> Any:
    """Return the value of an answer as the workflow gets it. Raise `InvalidAnswer` if it does not fit the schema."""
    value = to_plain_values(value)
    checker = _checker(wait)
    if checker is None:
        return value
    problems = _problems(checker, value)
    for other in _possible_values(wait, value) if problems else ():
        if not _problems(checker, other):
            return _with_asked_payload(wait, other)
    if problems:
        raise InvalidAnswer(f"the value does not fit the schema of the wait {wait.id!r}: {problems}")
    return _with_asked_payload(wait, value)


def _with_asked_payload(wait: InputWait | QuestionWait, value: Any) -> Any:
    """Add the payload that a tool in a node asked for confirmation with, unless the answer has its own."""
    asked, answer = as_object(wait.payload), as_object(value)
    if _CONFIRMED not in answer or _ASKED_PAYLOAD not in asked or answer.get("payload") is not None:
        return value
    return {**answer, "payload": asked[_ASKED_PAYLOAD]}


def answer_content(call_id: str, value: Any) -> types.Content:
    """Build the content that brings a checked value to the workflow."""
    if isinstance(value, str) and _is_json(value):
        value = json.dumps(value)  # the text stays a text: ADK would read "3" as a number
    members: dict[str, Any] = cast("dict[str, Any]", value) if isinstance(value, dict) else {_KEY: value}
    if isinstance(value, dict) and members.keys() == {_KEY}:
        members = {_KEY: members}
    return result_content(call_id, INPUT_CALL, members)


def result_content(call_id: str, name: str, result: Mapping[str, Any]) -> types.Content:
    """Build the content that brings the result of one call."""
    response = types.FunctionResponse(id=call_id, name=name, response=dict(result))
    return types.Content(role="user", parts=[types.Part(function_response=response)])


def _checker(wait: InputWait | QuestionWait) -> SchemaChecker | None:
    """Compile the schema of a request, or return None if any value fits or the schema itself is wrong."""
    try:
        return SchemaChecker(wait.schema) if wait.schema else None
    except ConfigError:
        return None


def _problems(checker: SchemaChecker, value: Any) -> str:
    try:
        return "; ".join(checker.check(value))
    except InvalidArguments as error:
        return str(error)


def _possible_values(wait: InputWait | QuestionWait, value: Any) -> list[Any]:
    """Return the values that a text, or a yes or no, may mean."""
    word = value.strip() if isinstance(value, str) else ""
    readings: list[Any] = [json.loads(word)] if _is_json(word) else []
    decision = _BOOLEANS.get(word.lower()) if word else value
    if isinstance(decision, bool):
        readings.append(decision)
        if _CONFIRMED in ((wait.schema or {}).get("properties") or {}):  # a node that asks before it runs
            readings.append({_CONFIRMED: decision})
    return readings


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
