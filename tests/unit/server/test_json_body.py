"""A large JSON response is sent in pieces, with the content of a small one; a large body is read in a thread."""

import json
import threading
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lango.server import json_body
from lango.server.json_body import JsonRequest, JsonResponse, large_response

TEXTS = st.text(st.characters(codec=None) | st.sampled_from('"\\\n\0ä😀\ud83d\ude00'), max_size=12)
VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)


@given(VALUES)
@example({"a": ["half a character \ud83d", "\ud83d\ude00 \ud83d", {"\ude00 in a name": 1}]})
@example([float("nan"), {}, [], [{}], ""])
async def test_a_large_response_has_the_content_of_a_small_one(value: Any) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(json_body, "_SENT_AT_ONCE", 5)
        large = await large_response(lambda: value)
    pieces = [bytes(piece) async for piece in large.body_iterator if not isinstance(piece, str)]
    assert large.headers["content-length"] == str(sum(map(len, pieces)))
    assert json.loads(b"".join(pieces)) == json.loads(bytes(JsonResponse(value).body))


@pytest.mark.parametrize(("size", "on_loop"), [(1_000, True), (1_000_000, False)])
async def test_attack_16_a_large_body_is_read_outside_the_event_loop(
    size: int, on_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    real = json_body.read_counted

    def read(data: bytes) -> Any:
        threads.append(threading.get_ident())
        return real(data)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": json.dumps(["a" * size]).encode(), "more_body": False}

    monkeypatch.setattr(json_body, "read_counted", read)
    assert await JsonRequest({"type": "http", "headers": []}, receive).json() == ["a" * size]
    assert (threads == [threading.get_ident()]) == on_loop
