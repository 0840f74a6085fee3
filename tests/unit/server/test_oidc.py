"""Tokens are verified against a real issuer on this machine."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from lango.config import OidcSettings
from lango.errors import ConfigError, IssuerUnavailable
from lango.server.errors import ApiError
from lango.server.security import oidc
from lango.server.security.oidc import Issuer, check_addresses
from tests.support.servers.issuer import LocalIssuer, ec_key, ed_key, issuing, rsa_key


@pytest.fixture
def local() -> Iterator[LocalIssuer]:
    with issuing(rsa_key("r1"), ec_key("e1"), ed_key("d1")) as running:
        yield running


def settings(local: LocalIssuer, **more: Any) -> OidcSettings:
    return OidcSettings.model_validate({"issuer": local.url, "audience": ["lango"], **more})


async def refused(issuer: Issuer, token: str) -> str:
    with pytest.raises(ApiError) as caught:
        await issuer.verify_user(token)
    assert caught.value.status == 401
    assert "invalid_token" in caught.value.headers["WWW-Authenticate"]
    return str(caught.value)


async def test_every_kind_of_key_verifies_and_is_fetched_once(local: LocalIssuer) -> None:
    issuer = Issuer(settings(local))
    for key in local.keys:
        assert await issuer.verify_user(local.token("alice", key)) == "oidc:alice"
    await asyncio.gather(*(issuer.verify_user(local.token("alice")) for _ in range(20)))
    assert local.requested_paths == ["/.well-known/openid-configuration", "/keys"]


async def test_many_tokens_at_once_ask_the_issuer_once(local: LocalIssuer) -> None:
    issuer = Issuer(settings(local))
    await asyncio.gather(*(issuer.verify_user(local.token("alice")) for _ in range(20)))
    assert local.requested_paths == ["/.well-known/openid-configuration", "/keys"]


async def test_rotated_keys_are_found_and_old_ones_forgotten(local: LocalIssuer) -> None:
    issuer = Issuer(settings(local))
    old = local.keys[0]
    await issuer.verify_user(local.token("alice", old))
    local.keys = [rsa_key("r2")]
    assert await issuer.verify_user(local.token("alice")) == "oidc:alice"
    assert "not one of the issuer's" in await refused(issuer, local.token("alice", old))


async def test_unknown_key_ids_do_not_flood_the_issuer(local: LocalIssuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oidc, "_FETCH_WINDOW_S", 600.0)
    issuer = Issuer(settings(local))
    for number in range(50):
        forged = local.token("alice", rsa_key(f"unknown-{number}") if number < 2 else ec_key(f"unknown-{number}"))
        assert "not one of the issuer's" in await refused(issuer, forged)
    assert local.requested_paths.count("/keys") == 5
    assert await issuer.verify_user(local.token("alice")) == "oidc:alice"


async def test_old_keys_are_fetched_again_and_hold_while_the_issuer_is_away(
    local: LocalIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer = Issuer(settings(local))
    await issuer.verify_user(local.token("alice"))
    monkeypatch.setattr(oidc, "_KEYS_FRESH_S", -1.0)
    await issuer.verify_user(local.token("alice"))
    assert local.requested_paths.count("/keys") == 2
    local.answers["/keys"] = 500
    assert await issuer.verify_user(local.token("alice")) == "oidc:alice"
    monkeypatch.setattr(oidc, "_KEYS_KEPT_S", -1.0)
    with pytest.raises(IssuerUnavailable, match="status 500"):
        await issuer.verify_user(local.token("alice"))


async def test_an_issuer_that_fails_is_left_alone_for_a_while(
    local: LocalIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc, "_RETRY_PAUSE_S", 600.0)
    issuer = Issuer(settings(local))
    local.answers["/keys"] = 503
    for _ in range(10):
        with pytest.raises(IssuerUnavailable, match="API keys still work") as caught:
            await issuer.verify_user(local.token("alice"))
        assert caught.value.retry_after_s
    assert local.requested_paths.count("/keys") == 1


@pytest.mark.parametrize(
    ("path", "answer", "why"),
    [
        ("/keys", b"<html>", "JSON"),
        ("/keys", b"[1]", "JSON object"),
        ("/keys", {"keys": []}, "no usable keys"),
        ("/keys", {"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "r1"}]}, "no public keys"),
        ("/keys", b"x" * 600_000, "more than"),
        ("/keys", "http://127.0.0.1:9/elsewhere", "status 302"),
        ("/.well-known/openid-configuration", "http://127.0.0.1:9/elsewhere", "status 302"),
        ("/.well-known/openid-configuration", {"issuer": "https://evil.example"}, "another issuer"),
        ("/.well-known/openid-configuration", 404, "status 404"),
    ],
)
async def test_an_invalid_response_of_the_issuer_is_refused(
    local: LocalIssuer, path: str, answer: Any, why: str
) -> None:
    local.answers[path] = answer
    with pytest.raises(IssuerUnavailable, match=why):
        await Issuer(settings(local)).verify_user(local.token("alice"))


@pytest.mark.parametrize("address", ["http://keys.example/keys", "file:///etc/passwd", "ftp://127.0.0.1/keys", "", 3])
async def test_keys_are_read_from_safe_addresses_only(local: LocalIssuer, address: Any) -> None:
    local.answers["/.well-known/openid-configuration"] = {"issuer": local.url, "jwks_uri": address}
    with pytest.raises(IssuerUnavailable, match="https://"):
        await Issuer(settings(local)).load_keys()


async def test_the_address_of_the_keys_can_be_set(local: LocalIssuer) -> None:
    issuer = Issuer(settings(local, jwks_url=f"{local.url}/keys"))
    assert await issuer.load_keys() == 3
    assert local.requested_paths == ["/keys"]


@pytest.mark.parametrize("address", ["http://issuer.example", "issuer.example", "file:///x", "https://", "http://[::1"])
def test_an_issuer_without_https_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="must be https"):
        check_addresses(OidcSettings(issuer=address, audience=["lango"]))
    check_addresses(OidcSettings(issuer="https://issuer.example/realm", audience=["lango"]))
    check_addresses(OidcSettings(issuer="http://[::1]:8080", audience=["lango"]))


async def test_a_short_key_and_a_key_for_something_else_sign_nothing(local: LocalIssuer) -> None:
    short, other = rsa_key("short", bits=1024), rsa_key("enc", use="enc")
    local.keys += [short, other]
    issuer = Issuer(settings(local))
    with pytest.warns(UserWarning, match="below the minimum"):
        made = local.token("alice", short)
    assert "not one of the issuer's" in await refused(issuer, made)
    assert "not one of the issuer's" in await refused(issuer, local.token("alice", other))


async def test_a_token_without_a_key_id_needs_a_single_key(local: LocalIssuer) -> None:
    import jwt

    issuer = Issuer(settings(local))
    bare = jwt.encode(local.claims("alice"), local.keys[0].private, "RS256")
    assert await issuer.verify_user(bare) == "oidc:alice"  # one RSA key, one EC key, one OKP key
    local.keys.append(rsa_key("r2"))
    assert "not one of the issuer's" in await refused(Issuer(settings(local)), bare)


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"aud": "somebody-else"}, "not for this server"),
        ({"aud": None}, "no claim 'aud'"),
        ({"iss": "https://evil.example"}, "issuer"),
        ({"iss": None}, "no claim 'iss'"),
        ({"exp": 1}, "expired"),
        ({"exp": None}, "no claim 'exp'"),
        ({"nbf": 99_999_999_999}, "not valid yet"),
        ({"exp": "soon"}, "cannot be verified"),
        ({"exp": float("inf")}, "cannot be verified"),
        ({"sub": None}, "no claim 'sub'"),
        ({"sub": ""}, "does not name a user"),
        ({"sub": "a\x00b"}, "does not name a user"),
        ({"sub": "a" * 300}, "does not name a user"),
    ],
)
async def test_claims_that_do_not_fit_are_refused(local: LocalIssuer, claims: dict[str, Any], why: str) -> None:
    assert why in await refused(Issuer(settings(local)), local.token("alice", **claims))


async def test_clocks_may_differ_by_the_leeway_only(local: LocalIssuer) -> None:
    import time

    issuer = Issuer(settings(local, leeway_s=30))
    now = time.time()
    assert await issuer.verify_user(local.token("alice", exp=int(now) - 10))
    assert await issuer.verify_user(local.token("alice", nbf=int(now) + 10))
    assert "expired" in await refused(issuer, local.token("alice", exp=int(now) - 60))
    assert "not valid yet" in await refused(issuer, local.token("alice", nbf=int(now) + 60))


async def test_another_claim_can_name_the_user(local: LocalIssuer) -> None:
    issuer = Issuer(settings(local, user_claim="email", user_prefix="work:"))
    assert "not verified" in await refused(issuer, local.token("1", email="a@example.com"))
    token = local.token("1", email="a@example.com", email_verified=True)
    assert await issuer.verify_user(token) == "work:a@example.com"


@pytest.mark.parametrize("algorithm", ["HS256", "none", "RS1"])
def test_an_algorithm_without_a_public_key_cannot_be_set(algorithm: str) -> None:
    with pytest.raises(ValueError, match="algorithms"):
        OidcSettings.model_validate({"issuer": "https://i.example", "audience": ["a"], "algorithms": [algorithm]})
