"""Signatures: the vendors' documented examples, or values of OpenSSL, and everything that must not pass."""

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace
from standardwebhooks import Webhook

from lango.errors import ConfigError
from lango.webhooks.signatures import SignatureKind, is_signed_by, sign, signing_key


class Example(Struct, frozen=True):
    kind: SignatureKind
    secret: str
    headers: dict[str, str]
    body: bytes
    sent_at: float = 0.0
    header: str = ""


STANDARD = Example(  # of the specification
    "standard",
    "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    },
    b'{"test": 2432232314}',
    1_614_265_330,
)
GITHUB = Example(  # of GitHub's documentation
    "github",
    "It's a Secret to Everybody",
    {"x-hub-signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"},
    b"Hello, World!",
)
SLACK = Example(  # of Slack's documentation
    "slack",
    "8f742231b10e8888abcd99yyyzzz85a5",
    {
        "x-slack-request-timestamp": "1531420618",
        "x-slack-signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
    },
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar"
    b"&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack."
    b"com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc"
    b"887a14d10d2c447fce8b6703c",
    1_531_420_618,
)
STRIPE = Example(  # its hash by `openssl dgst -sha256 -hmac`; a second one, of a test mode, must not disturb
    "stripe",
    "whsec_test_secret",
    {
        "stripe-signature": "t=1492774577,v0=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39,"
        "v1=4ee5e8d695c9619e003fd480d3d51700d924e29697337d379a6ef6e06e703ab4"
    },
    b'{"id":"evt_1","type":"charge.succeeded"}',
    1_492_774_577,
)
PLAIN = Example(
    "hmac",
    "plain-secret",
    {"x-signature": "f170663d7394ebe3fa0df6489bd205280f0209caeb6676b76533dfd8bc7640ba"},
    b'{"id":7}',
    header="X-Signature",
)
PLAIN_BASE64 = replace(PLAIN, headers={"x-signature": "8XBmPXOU6+P6DfZIm9IFKA8CCcrrZna3ZTPf2Lx2QLo="})
EXAMPLES = [STANDARD, GITHUB, SLACK, STRIPE, PLAIN, PLAIN_BASE64]
TIMED = [STANDARD, SLACK, STRIPE]


def is_accepted(example: Example, *, late_s: float = 0.0, keys: tuple[str, ...] = ()) -> bool:
    secrets = keys or (example.secret,)
    return is_signed_by(
        example.kind,
        [signing_key(example.kind, secret, "SECRET") for secret in secrets],
        example.headers,
        example.body,
        header=example.header,
        tolerance_s=300.0,
        now=example.sent_at + late_s,
    )


def changed_secret(example: Example) -> str:
    return "whsec_" + base64.b64encode(b"another secret").decode() if example.kind == "standard" else "another"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.kind)
def test_what_a_vendor_signs_is_accepted_and_nothing_else(example: Example) -> None:
    assert is_accepted(example)
    assert is_accepted(example, keys=(changed_secret(example), example.secret)), "while the secret changes"
    assert not is_accepted(example, keys=(changed_secret(example),))
    assert not is_accepted(replace(example, body=example.body + b" "))
    for name, value in example.headers.items():
        assert not is_accepted(replace(example, headers={**example.headers, name: value[:-1]}))
        assert not is_accepted(replace(example, headers={**example.headers, name: value + "é"}))
        assert not is_accepted(replace(example, headers={**example.headers, name: ""}))
        assert not is_accepted(
            replace(example, headers={key: one for key, one in example.headers.items() if key != name})
        )


@pytest.mark.parametrize("example", TIMED, ids=lambda example: example.kind)
def test_a_recorded_request_is_refused_later(example: Example) -> None:
    assert is_accepted(example, late_s=300.0)
    assert is_accepted(example, late_s=-300.0)
    assert not is_accepted(example, late_s=301.0)
    assert not is_accepted(example, late_s=-301.0)
    later = str(int(example.sent_at) + 301)
    headers = {name: value.replace(str(int(example.sent_at)), later) for name, value in example.headers.items()}
    assert not is_accepted(replace(example, headers=headers), late_s=301.0), "the time is signed"


@pytest.mark.parametrize("sent_at", ["01614265330", "+1614265330", " 1614265330", "1614265330.0", "٣", "9" * 40])
def test_a_time_in_another_spelling_is_refused(sent_at: str) -> None:
    assert not is_accepted(replace(STANDARD, headers={**STANDARD.headers, "webhook-timestamp": sent_at}))


def test_one_of_several_signatures_is_enough_and_their_number_is_bounded() -> None:
    valid = STANDARD.headers["webhook-signature"]
    several = {**STANDARD.headers, "webhook-signature": f"v1a,AAAA v1,AAAA= v1,!! {valid}"}
    assert is_accepted(replace(STANDARD, headers=several))
    many = {**STANDARD.headers, "webhook-signature": "v1,AAAA " * 10 + valid}
    assert not is_accepted(replace(STANDARD, headers=many))


def test_the_standard_package_accepts_what_is_signed_here() -> None:
    body = json.dumps({"type": "turn.done", "text": "é"}).encode()
    sent_at = datetime.now(UTC)
    headers = sign(signing_key("standard", STANDARD.secret, "SECRET"), "msg_1", int(sent_at.timestamp()), body)
    read: Any = Webhook(STANDARD.secret).verify(body, headers)
    assert read["type"] == "turn.done"
    assert headers["webhook-signature"] == Webhook(STANDARD.secret).sign("msg_1", sent_at, body.decode())


def test_a_secret_of_another_form_names_its_variable_and_not_itself() -> None:
    with pytest.raises(ConfigError, match="HOOK_SECRET must hold") as refused:
        signing_key("standard", "whsec_no base64", "HOOK_SECRET")
    assert "no base64" not in str(refused.value)
