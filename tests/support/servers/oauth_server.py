"""A real OAuth 2 server on this machine: codes with PKCE, refresh, client credentials, an API, metadata."""

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
from fastapi.openapi.models import OAuth2, OAuthFlowAuthorizationCode, OAuthFlowClientCredentials, OAuthFlows
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes, OAuth2Auth
from google.adk.auth.auth_tool import AuthConfig

from tests.support.servers.thread_server import serving

CLIENT_ID = "lango-test"


@dataclass
class _Grant:
    user: str
    redirect_uri: str = ""
    challenge: str = ""


@dataclass
class OAuthServer:
    """Its secrets begin with what they are, so that a test can search for them."""

    url: str = ""
    client_secret: str = field(default_factory=lambda: f"client-secret-{secrets.token_hex(8)}")
    expires_in: int = 3600
    user: str = "alice"
    """Who is signed in to the server, and allows the access."""
    denies: bool = False
    reusable_codes: bool = False
    """A code counts again: of two runs from the same state, each is the one that exchanges it."""
    codes: dict[str, _Grant] = field(default_factory=dict[str, _Grant])
    access: dict[str, tuple[str, float]] = field(default_factory=dict[str, tuple[str, float]])
    """The valid access tokens: of which user, and until when."""
    refresh: dict[str, str] = field(default_factory=dict[str, str])
    issued: list[str] = field(default_factory=list[str])
    """Every code and token, in order: none of them may be found anywhere."""
    verifiers: list[str] = field(default_factory=list[str])
    grants: list[str] = field(default_factory=list[str])
    """The types of the token requests."""
    rotates: bool = True
    """A refresh gives a new refresh token; otherwise the old one stays valid, and the answer names none."""
    public: bool = False
    """The client has no secret."""
    closed: bool = False
    """The API refuses every token."""
    refused_grants: set[str] = field(default_factory=set[str])
    may_answer: threading.Event = field(default_factory=threading.Event)
    """Token requests wait for it, if the server `hangs`; for two minutes at most, so that no test hangs with them."""
    hangs: bool = False
    asked: threading.Event = field(default_factory=threading.Event)
    """A token request has come."""
    client_methods: list[str] = field(default_factory=list[str])
    """How each token request named its client: `basic` in a header, or `post` in its body."""

    @property
    def secrets(self) -> list[str]:
        return [self.client_secret, *self.issued, *self.verifiers]

    def config(
        self, redirect_uri: str = "http://127.0.0.1:1/callback", *, pkce: bool = False, key: str = "account"
    ) -> AuthConfig:
        """Return what a tool gives ADK to ask for access."""
        flow = OAuthFlowAuthorizationCode(
            authorizationUrl=f"{self.url}/authorize", tokenUrl=f"{self.url}/token", scopes={"read": "", "write": ""}
        )
        oauth2 = OAuth2Auth(
            client_id=CLIENT_ID,
            client_secret=self.client_secret,
            redirect_uri=redirect_uri,
            code_challenge_method="S256" if pkce else None,
        )
        return AuthConfig(
            auth_scheme=OAuth2(flows=OAuthFlows(authorizationCode=flow)),
            raw_auth_credential=AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=oauth2),
            credential_key=key,
        )

    def client_credentials(self) -> AuthConfig:
        flow = OAuthFlowClientCredentials(tokenUrl=f"{self.url}/token", scopes={"read": ""})
        oauth2 = OAuth2Auth(client_id=CLIENT_ID, client_secret=self.client_secret)
        return AuthConfig(
            auth_scheme=OAuth2(flows=OAuthFlows(clientCredentials=flow)),
            raw_auth_credential=AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=oauth2),
            credential_key="application",
        )

    async def allow(self, auth_url: str) -> str:
        """Open an address as a browser does, and return the one that it is sent to."""
        async with httpx.AsyncClient() as browser:
            answer = await browser.get(auth_url)
        assert answer.status_code == 302, answer.text
        return answer.headers["location"]

    def whose(self, token: str) -> str | None:
        """Return the user of a valid access token."""
        user, until = self.access.get(token, ("", 0.0))
        return user if time.time() < until and not self.closed else None

    def expire_all(self) -> None:
        self.access.clear()

    # -- what it answers ------------------------------------------------------------------------------------------

    def authorize(self, query: dict[str, str]) -> str:
        back = {"state": query["state"]}
        if self.denies:
            back |= {"error": "access_denied"}
        else:
            code = self._issue("code")
            self.codes[code] = _Grant(self.user, query.get("redirect_uri", ""), query.get("code_challenge", ""))
            back |= {"code": code}
        return f"{query['redirect_uri']}?{urlencode(back)}"

    def token(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        self.grants.append(form["grant_type"])
        if form["grant_type"] in self.refused_grants:
            return 400, {"error": "unauthorized_client"}
        match form["grant_type"]:
            case "authorization_code":
                code = form.get("code", "")
                grant = self.codes.get(code) if self.reusable_codes else self.codes.pop(code, None)
                if grant is None or grant.redirect_uri != form.get("redirect_uri", ""):
                    return 400, {"error": "invalid_grant"}
                if grant.challenge:
                    verifier = form.get("code_verifier", "")
                    self.verifiers.append(verifier)
                    digest = hashlib.sha256(verifier.encode()).digest()
                    if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != grant.challenge:
                        return 400, {"error": "invalid_grant"}
                return 200, self._tokens(grant.user)
            case "refresh_token":
                token = form.get("refresh_token", "")
                user = self.refresh.pop(token, None) if self.rotates else self.refresh.get(token)
                if user is None:
                    return 400, {"error": "invalid_grant"}
                return 200, self._tokens(user, refresh=self.rotates)
            case "client_credentials":
                return 200, self._tokens("the application", refresh=False)
            case _:
                return 400, {"error": "unsupported_grant_type"}

    def _tokens(self, user: str, *, refresh: bool = True) -> dict[str, Any]:
        access = self._issue("access")
        self.access[access] = user, time.time() + self.expires_in
        tokens: dict[str, Any] = {"access_token": access, "token_type": "Bearer", "expires_in": self.expires_in}
        if refresh:
            tokens["refresh_token"] = self._issue("refresh")
            self.refresh[tokens["refresh_token"]] = user
        return tokens

    def _issue(self, what: str) -> str:
        self.issued.append(f"{what}-{secrets.token_hex(12)}")
        return self.issued[-1]


def _client_of(authorization: str, form: dict[str, str]) -> tuple[str, str]:
    if authorization.startswith("Basic "):
        name, _, secret = base64.b64decode(authorization[6:]).decode().partition(":")
        return name, secret
    return form.get("client_id", ""), form.get("client_secret", "")


@contextmanager
def oauth_server(**options: Any) -> Generator[OAuthServer]:
    """Run a server until the block ends."""
    server = OAuthServer(**options)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            place = urlsplit(self.path)
            if place.path == "/authorize":
                query = {name: values[0] for name, values in parse_qs(place.query).items()}
                self.send_response(302)
                self.send_header("Location", server.authorize(query))
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if place.path == "/.well-known/oauth-authorization-server":
                addresses = {
                    "authorization_endpoint": f"{server.url}/authorize",
                    "token_endpoint": f"{server.url}/token",
                }
                self._send(200, {"issuer": server.url, **addresses})
                return
            user = server.whose((self.headers["Authorization"] or "").removeprefix("Bearer "))
            self._send(200 if user else 401, {"user": user})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            server.asked.set()
            if server.hangs:
                server.may_answer.wait(120)
            server.client_methods.append("basic" if self.headers["Authorization"] else "post")
            secret = "" if server.public else server.client_secret
            if _client_of(self.headers["Authorization"] or "", form) != (CLIENT_ID, secret):
                self._send(401, {"error": "invalid_client"})
                return
            self._send(*server.token(form))

        def _send(self, status: int, document: dict[str, Any]) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with serving(Handler) as server.url:
        yield server
