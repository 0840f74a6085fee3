"""A real issuer of tokens on this machine: its own keys, and the two documents that say where they are."""

import functools
import itertools
import json
import time
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from tests.support.servers.thread_server import serving

_DIFFERENT_KEYS = 8  # more than one test needs
_NUMBERS = itertools.count()

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


@dataclass
class SigningKey:
    kid: str
    algorithm: str
    private: PrivateKey
    use: str = "sig"

    @property
    def public_pem(self) -> bytes:
        return self.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def as_jwk(self) -> dict[str, Any]:
        match self.private:
            case rsa.RSAPrivateKey():
                shown = RSAAlgorithm.to_jwk(self.private.public_key(), as_dict=True)
            case ec.EllipticCurvePrivateKey():
                shown = ECAlgorithm.to_jwk(self.private.public_key(), as_dict=True)
            case ed25519.Ed25519PrivateKey():
                shown = OKPAlgorithm.to_jwk(self.private.public_key(), as_dict=True)
        return {**shown, "kid": self.kid, "use": self.use}


def rsa_key(kid: str = "", bits: int = 2048, use: str = "sig") -> SigningKey:
    return SigningKey(kid or uuid.uuid4().hex, "RS256", _rsa_private_key(bits, next(_NUMBERS) % _DIFFERENT_KEYS), use)


@functools.cache
def _rsa_private_key(bits: int, _number: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)  # half a second: a run makes few and uses them again


def ec_key(kid: str = "") -> SigningKey:
    return SigningKey(kid or uuid.uuid4().hex, "ES256", ec.generate_private_key(ec.SECP256R1()))


def ed_key(kid: str = "") -> SigningKey:
    return SigningKey(kid or uuid.uuid4().hex, "EdDSA", ed25519.Ed25519PrivateKey.generate())


@dataclass
class LocalIssuer:
    url: str = ""
    keys: list[SigningKey] = field(default_factory=list[SigningKey])
    answers: dict[str, Any] = field(default_factory=dict[str, Any])
    """What a path answers instead: a document, a status, bytes, or an address to go to."""
    requested_paths: list[str] = field(default_factory=list[str])

    def document(self, path: str) -> Any:
        if path in self.answers:
            return self.answers[path]
        match path:
            case "/.well-known/openid-configuration":
                return {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
            case "/keys":
                return {"keys": [key.as_jwk() for key in self.keys]}
            case _:
                return 404

    def claims(self, user: str, **more: Any) -> dict[str, Any]:
        now = int(time.time())
        return {"iss": self.url, "aud": "lango", "sub": user, "iat": now, "exp": now + 300} | more

    def token(self, user: str, key: SigningKey | None = None, **more: Any) -> str:
        key = key or self.keys[0]
        claims = {name: value for name, value in self.claims(user, **more).items() if value is not None}
        return jwt.encode(claims, key.private, key.algorithm, {"kid": key.kid})


@contextmanager
def issuing(*keys: SigningKey) -> Generator[LocalIssuer]:
    """Run an issuer until the block ends."""
    issuer = LocalIssuer(keys=list(keys))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.requested_paths.append(self.path)
            answer = issuer.document(self.path)
            if isinstance(answer, int):
                self.send_response(answer)
                body = b""
            elif isinstance(answer, str):
                self.send_response(302)
                self.send_header("Location", answer)
                body = b""
            else:
                self.send_response(200)
                body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with serving(Handler) as issuer.url:
        yield issuer
