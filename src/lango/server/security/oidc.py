"""Verify OpenID Connect tokens with the issuer's public keys, which are fetched, cached and refreshed.

Only algorithms with a public key are accepted, whatever a token's header says, and a key is used only for algorithms of
its own type. The keys are fetched over https (http on this machine only), without following redirects.
Imports `jwt`, which is optional: only `server.auth = "oidc"` imports this module.
"""

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, cast
from urllib.parse import urlsplit

import httpx

from lango.config import OidcSettings
from lango.errors import ConfigError, IssuerUnavailable, MissingDependency
from lango.server.errors import ApiError
from lango.server.security.hosts import is_loopback

try:
    import jwt
    from cryptography.hazmat.primitives.asymmetric import rsa
except ImportError as error:
    raise MissingDependency(
        'server.auth = "oidc" needs a package that is not installed: pip install "lango-adk[oidc]"'
    ) from error

_log = logging.getLogger("lango.server")

MAX_TOKEN_BYTES = 16_384
_MAX_RESPONSE_BYTES = 512_000
_TIMEOUT_S = 5.0
_KEYS_FRESH_S = 3_600.0
"""Older keys are fetched again."""
_KEYS_KEPT_S = 86_400.0
"""How long cached keys stay valid while the issuer does not respond."""
_RETRY_PAUSE_S = 5.0
"""Pause before the next request to an issuer that did not respond."""
_MAX_FETCHES, _FETCH_WINDOW_S = 5, 60.0
"""Tokens with unknown key ids must not cause unlimited requests to the issuer."""
_MIN_RSA_BITS = 2_048
_MAX_NAME_LENGTH = 255
_WELL_KNOWN = "/.well-known/openid-configuration"
_KEY_TYPE_BY_ALGORITHM = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}


def check_addresses(settings: OidcSettings) -> None:
    """Raise `ConfigError` for addresses that are not protected against a man in the middle."""
    for name, address in (("issuer", settings.issuer), ("jwks_url", settings.jwks_url)):
        if address and not _is_safe(address):
            raise ConfigError(
                f"server.oidc.{name}: {address} must be https://; http:// is accepted on this machine only"
            )


class Issuer:
    """Verifies tokens and returns their users."""

    def __init__(self, settings: OidcSettings) -> None:
        self.settings = settings
        self._keys: list[jwt.PyJWK] = []
        self._fetched_at = float("-inf")
        self._failed_at = float("-inf")
        self._failure: IssuerUnavailable | None = None
        self._fetches: deque[float] = deque()
        self._fetch_lock = asyncio.Lock()

    async def verify_user(self, token: str) -> str:
        """Return the user of a token; raise `ApiError` for an invalid one, `IssuerUnavailable` without keys."""
        if len(token) > MAX_TOKEN_BYTES:
            raise _token_refused("it is too large")
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError) as error:
            raise _token_refused("it is not a JSON Web Token") from error
        algorithm = header.get("alg")
        if algorithm not in self.settings.algorithms:
            raise _token_refused("its algorithm is not accepted (setting server.oidc.algorithms)")
        key = await self._find_key(header.get("kid"), algorithm)
        return self._user_from_claims(self._verify_claims(token, key, algorithm))

    def _verify_claims(self, token: str, key: jwt.PyJWK, algorithm: str) -> dict[str, Any]:
        settings = self.settings
        try:
            return jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                audience=settings.audience,
                issuer=settings.issuer,
                leeway=settings.leeway_s,
                options={"require": ["exp", "iss", "aud", settings.user_claim]},
            )
        except jwt.ExpiredSignatureError as error:
            raise _token_refused("it has expired") from error
        except (jwt.ImmatureSignatureError, jwt.InvalidIssuedAtError) as error:
            raise _token_refused("it is not valid yet") from error
        except jwt.InvalidAudienceError as error:
            raise _token_refused("it is not for this server (setting server.oidc.audience)") from error
        except jwt.InvalidIssuerError as error:
            raise _token_refused("it was issued by another issuer (setting server.oidc.issuer)") from error
        except jwt.MissingRequiredClaimError as error:
            raise _token_refused(f"it has no claim {error.claim!r}") from error
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise _token_refused("it cannot be verified") from error

    def _user_from_claims(self, claims: dict[str, Any]) -> str:
        claim = self.settings.user_claim
        name = claims.get(claim)
        if not (isinstance(name, str) and name.strip() and name.isprintable() and len(name) <= _MAX_NAME_LENGTH):
            raise _token_refused(f"its claim {claim!r} does not name a user")
        if claim == "email" and claims.get("email_verified") is not True:
            raise _token_refused("its email address is not verified by the issuer")
        return self.settings.user_prefix + name

    # -- the issuer's keys ----------------------------------------------------------------------------------------

    async def _find_key(self, kid: object, algorithm: str) -> "jwt.PyJWK":
        """Return the key that a token names, after fetching keys that are old or do not include it."""
        started_at = time.monotonic()
        if started_at - self._fetched_at > _KEYS_FRESH_S:
            await self._refresh_keys(started_at)
        found = _select_key(self._keys, kid, algorithm)
        if found is None and await self._fetch_keys(started_at):
            found = _select_key(self._keys, kid, algorithm)
        if found is None:
            raise _token_refused("its key is not one of the issuer's")
        return found

    async def load_keys(self) -> int:
        """Fetch the keys now; return their number. Raise `IssuerUnavailable` if that fails."""
        await self._fetch_keys(time.monotonic())
        return len(self._keys)

    async def _refresh_keys(self, started_at: float) -> None:
        """Fetch keys that are old; while the issuer does not respond, they stay valid for a time."""
        try:
            await self._fetch_keys(started_at)
        except IssuerUnavailable:
            if started_at - self._fetched_at > _KEYS_KEPT_S:
                raise

    async def _fetch_keys(self, started_at: float) -> bool:
        """Fetch the keys unless another task did since `started_at`; False: the issuer was asked too often."""
        async with self._fetch_lock:
            now = time.monotonic()
            if self._fetched_at >= started_at:
                return True
            if self._failure and now - self._failed_at < _RETRY_PAUSE_S:
                raise self._failure
            while self._fetches and self._fetches[0] <= now - _FETCH_WINDOW_S:
                self._fetches.popleft()
            if len(self._fetches) >= _MAX_FETCHES:
                if self._failure:
                    raise self._failure
                return False
            self._fetches.append(now)
            try:
                self._keys = await fetch_keys(self.settings)
            except IssuerUnavailable as error:
                self._failed_at, self._failure = time.monotonic(), error
                _log.warning("%s", error)
                raise
            self._fetched_at, self._failure = time.monotonic(), None
            return True


def _select_key(keys: Sequence["jwt.PyJWK"], kid: object, algorithm: str) -> "jwt.PyJWK | None":
    """Return the key with that id; without an id, the only key for the algorithm."""
    fitting = [key for key in keys if _is_usable_key(key, algorithm)]
    if kid is None:
        return fitting[0] if len(fitting) == 1 else None
    return next((key for key in fitting if key.key_id == kid), None)


def _is_usable_key(key: "jwt.PyJWK", algorithm: str) -> bool:
    """Whether a key is for signatures of that algorithm, and long enough."""
    public: Any = key.key
    if isinstance(public, rsa.RSAPublicKey) and public.key_size < _MIN_RSA_BITS:
        return False
    return key.key_type == _KEY_TYPE_BY_ALGORITHM[algorithm[:2]] and key.public_key_use in (None, "sig")


async def fetch_keys(settings: OidcSettings) -> list["jwt.PyJWK"]:
    """Fetch the issuer's public keys. Raise `IssuerUnavailable` if that fails."""
    async with httpx.AsyncClient(follow_redirects=False, timeout=_TIMEOUT_S) as client:
        try:
            async with asyncio.timeout(2 * _TIMEOUT_S):
                url = settings.jwks_url or await _discover_jwks_url(client, settings.issuer)
                document = await _read_json(client, url)
        except TimeoutError as error:
            raise _issuer_unavailable(f"{settings.issuer} did not answer in time") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _issuer_unavailable(f"{settings.issuer} does not answer ({type(error).__name__})") from error
    try:
        found = jwt.PyJWKSet.from_dict(document).keys
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        raise _issuer_unavailable(f"{url} has no usable keys") from error
    public = [key for key in found if key.key_type in _KEY_TYPE_BY_ALGORITHM.values()]
    if not public:
        raise _issuer_unavailable(f"{url} has no public keys")
    return public


async def _discover_jwks_url(client: httpx.AsyncClient, issuer: str) -> str:
    document = await _read_json(client, issuer.rstrip("/") + _WELL_KNOWN)
    if document.get("issuer") != issuer:
        raise _issuer_unavailable(f"{issuer} reports another issuer (setting server.oidc.issuer)")
    url = document.get("jwks_uri")
    if not isinstance(url, str) or not _is_safe(url, beside=issuer):
        raise _issuer_unavailable(f"{issuer} has no https:// address for its keys")
    return url


async def _read_json(client: httpx.AsyncClient, url: str) -> dict[str, Any]:
    async with client.stream("GET", url, headers={"Accept": "application/json"}) as response:
        if response.status_code != 200:
            raise _issuer_unavailable(f"{url} answers with status {response.status_code}")
        body = b""
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > _MAX_RESPONSE_BYTES:
                raise _issuer_unavailable(f"{url} answers with more than {_MAX_RESPONSE_BYTES} bytes")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _issuer_unavailable(f"{url} does not answer with JSON") from error
    if not isinstance(document, dict):
        raise _issuer_unavailable(f"{url} does not answer with a JSON object")
    return cast("dict[str, Any]", document)


def _is_safe(address: str, beside: str = "") -> bool:
    """Whether an address is https or this machine; a remote issuer may not name an address of this machine."""
    try:
        parts = urlsplit(address)
        host, near = parts.hostname or "", not beside or is_loopback(urlsplit(beside).hostname or "")
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host) and near))


def _issuer_unavailable(why: str) -> IssuerUnavailable:
    return IssuerUnavailable(f"tokens cannot be verified now: {why}; API keys still work", retry_after_s=_RETRY_PAUSE_S)


def _token_refused(why: str) -> ApiError:
    return ApiError(
        401,
        "Unauthorized",
        f"the token is not accepted: {why}",
        headers={"WWW-Authenticate": 'Bearer error="invalid_token"'},
    )
