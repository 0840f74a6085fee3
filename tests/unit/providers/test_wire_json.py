"""Bodies become JSON text within a bound, and without secrets."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lango.providers.call_log import body_to_json_text, bounded_json_text
from tests.support.examples import examples

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=300), inner, max_size=8),
    max_leaves=60,
)


@examples(80)
@given(_VALUES, st.integers(1_000, 20_000))
def test_a_value_is_kept_whole_or_shortened_to_the_bound(value: Any, max_bytes: int) -> None:
    text = bounded_json_text(value, max_bytes)
    assert len(text.encode()) <= max_bytes
    if len(json.dumps(value).encode()) <= max_bytes:
        assert json.loads(text) == value
    json.loads(text)


def test_huge_bodies_are_cut() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    wide = json.dumps([{"text": "x" * 100, "n": n} for n in range(50_000)]).encode()
    long = json.dumps({"text": "ü" * 3_000_000}).encode()
    noise = random.Random(1).randbytes(100_000)
    for body in (deep, wide, long, noise, b"", b"\x00" * 50_000):
        text = body_to_json_text(body, "application/json", 10_000)
        assert len(text.encode()) <= 10_000
        json.loads(text)


def test_secrets_are_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", 'quo"ted-secret')
    body = {
        "api_key": "abc",
        "headers": {"Authorization": "Bearer abc"},
        "text": 'my key is quo"ted-secret, and sk-abcdefghijklmnopqrst',
        "url": "http://host/",
        "next": "a:b@c",
        "max_tokens": 5,
        "properties": {"password": {"type": "string"}},
        "db": "postgresql://me:hidden@host/db",
    }
    kept = json.loads(body_to_json_text(json.dumps(body).encode(), "application/json", 10_000))
    assert kept == body | {
        "api_key": "[secret]",
        "headers": {"Authorization": "[secret]"},
        "text": "my key is [secret], and [secret]",
        "db": "postgresql://[secret]@host/db",
    }


def test_a_stream_is_the_list_of_its_events() -> None:
    body = b'event: a\r\ndata: {"n": 1}\r\n\r\n: ping\n\ndata: [DONE]\n\n'
    assert json.loads(body_to_json_text(body, "text/event-stream; charset=utf-8", 1_000)) == [{"n": 1}, "[DONE]"]
