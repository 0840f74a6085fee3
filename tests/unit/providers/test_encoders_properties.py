"""For any history, budget and provider, the encoded request follows all rules of that provider."""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lango.errors import BudgetTooSmall
from lango.history import fit_to_budget
from lango.messages import Message, Signature, Thought
from lango.providers import Request, anthropic, gemini, openai, openai_responses
from tests.support import wire_rules
from tests.support.provider_rules import any_history, sound_history

MODEL = "m1"
Check = Callable[[Request, str], list[str]]


def _gemini(request: Request, name: str) -> list[str]:
    return wire_rules.gemini(gemini.encode(request, provider=name), _own(request, name))


def _chat(request: Request, name: str) -> list[str]:
    return wire_rules.openai_chat(openai.encode(request))


def _responses(request: Request, name: str) -> list[str]:
    return wire_rules.openai_responses(openai_responses.encode(request, provider=name), _own(request, name))


def _anthropic(request: Request, name: str) -> list[str]:
    body = anthropic.encode(request, provider=name)
    return wire_rules.anthropic(body, _own(request, name), cut=request.cut)


def _thinking(request: Request, name: str) -> list[str]:
    body = anthropic.encode(request, provider=name, options={"thinking": {"type": "enabled", "budget_tokens": 1024}})
    return wire_rules.anthropic(body, _own(request, name), cut=request.cut)


def _own(request: Request, name: str) -> frozenset[bytes]:
    return wire_rules.own_signatures(request.messages, name, request.model)


CHECKS: tuple[Check, ...] = (_gemini, _chat, _responses, _anthropic, _thinking)


def broken_rules(request: Request, name: str) -> dict[str, list[str]]:
    """Return what every provider's checker finds in its encoding of a request."""
    return {check.__name__: found for check in CHECKS if (found := check(request, name))}


names = st.sampled_from(["gemini", "openai"])  # the providers whose signatures the histories carry


@given(any_history(), names, st.booleans())
def test_m8_any_history_is_encoded_as_a_valid_request(history: Any, name: str, cut: bool) -> None:
    assert broken_rules(Request(MODEL, tuple(history), "be brief", cut=cut), name) == {}


@given(any_history(), names, st.integers(1, 2_000))
def test_m8_any_history_and_any_budget_are_encoded_as_a_valid_request(
    history: list[Message], name: str, budget: int
) -> None:
    try:
        window = fit_to_budget(history, budget)
    except BudgetTooSmall:
        return
    assert broken_rules(Request(MODEL, tuple(window), cut=len(window) < len(history)), name) == {}


# What the vendors' own answers look like once they are stored: signed thoughts, signed calls, signed text.
_values = {
    "gemini": b"\x01gemini",
    "anthropic": b"c2lnbmVk",
    "redacted": b"redacted:c2VjcmV0",
    "openai": b'{"id":"rs_1","summary":[],"encrypted_content":"gAAAA"}',
    "late": b'[{"type":"thinking","thinking":"wait","signature":"bGF0ZQ=="}]',
}
_signatures = st.builds(
    Signature,
    st.sampled_from(["gemini", "anthropic", "openai"]),
    st.sampled_from([MODEL, "m2", ""]),
    st.sampled_from(sorted(_values.values())),
)


@st.composite
def signed_histories(draw: st.DrawFn) -> list[Message]:
    """Generate valid histories of several providers and models, with signatures wherever a model could put one."""
    maybe = st.one_of(st.none(), _signatures)
    history: list[Message] = []
    for message in draw(sound_history()):
        if message.role != "assistant":
            history.append(message)
            continue
        thoughts = draw(st.lists(st.builds(Thought, st.sampled_from(["", "hm"]), maybe), max_size=3))
        calls = tuple(replace(call, signature=draw(maybe)) for call in message.tool_calls)
        history.append(replace(message, thoughts=tuple(thoughts), tool_calls=calls, signature=draw(maybe)))
    return history


@given(signed_histories(), st.sampled_from(["gemini", "anthropic", "openai"]), st.booleans())
def test_m8_signatures_go_only_to_their_own_model(history: list[Message], name: str, cut: bool) -> None:
    assert broken_rules(Request(MODEL, tuple(history), cut=cut), name) == {}


@given(signed_histories())
def test_gemini_2_gets_no_placeholder(history: list[Message]) -> None:
    contents = gemini.encode(Request("gemini-2.5-flash", tuple(history)))["contents"]
    signatures = [part.get("thought_signature") for content in contents for part in content["parts"]]
    assert gemini.PLACEHOLDER_SIGNATURE not in signatures


@given(signed_histories())
def test_the_checkers_find_broken_requests(history: list[Message]) -> None:
    """Each kind of damage to a valid request is found by its checker."""
    calls = [message for message in history if message.tool_calls]
    if not calls:
        return
    request = Request(MODEL, tuple(history))
    assert wire_rules.openai_chat(_without(openai.encode(request), "messages", "role", "tool"))
    assert wire_rules.openai_responses(_without(openai_responses.encode(request), "input", "type", "function_call"))
    assert wire_rules.anthropic(_without(anthropic.encode(request), "messages", "role", "assistant"))
    assert wire_rules.gemini(_without(gemini.encode(request), "contents", "role", "model"))


def _without(body: dict[str, Any], items: str, key: str, value: str) -> dict[str, Any]:
    return body | {items: [item for item in body[items] if item.get(key) != value]}
