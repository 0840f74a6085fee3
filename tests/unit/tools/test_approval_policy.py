"""T3: which calls need approval, and what an approval is valid for."""

import itertools
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lango.config import ToolSettings
from lango.tools import Level
from lango.tools.execution import Decision, decide, fingerprint


@pytest.mark.parametrize(
    ("approval", "decisions"),
    [("ask", ["run", "ask", "ask"]), ("auto", ["run", "run", "run"]), ("deny", ["run", "deny", "deny"])],
)
def test_t3_levels_decide(approval: Any, decisions: list[Decision]) -> None:
    policy = ToolSettings(approval=approval)
    assert [decide("it", level, policy) for level in get_args(Level)] == decisions


def test_t3_dangerous_tools_ask_by_default_and_unknown_policies_deny() -> None:
    assert decide("it", "dangerous", ToolSettings()) == "ask"
    assert decide("it", "dangerous", ToolSettings.model_construct(approval="whatever", allow=[], deny=[])) == "deny"


def test_t3_names_win_over_levels_and_deny_wins_over_allow() -> None:
    for level, approval in itertools.product(get_args(Level), ("ask", "auto", "deny")):
        assert decide("it", level, ToolSettings(approval=approval, allow=["it"])) == "run"
        assert decide("it", level, ToolSettings(approval=approval, allow=["it"], deny=["it"])) == "deny"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), values, max_size=4))
def test_attack_9_the_order_of_keys_does_not_matter(arguments: dict[str, Any]) -> None:
    backwards = dict(reversed(list(arguments.items())))
    assert fingerprint("shell", arguments) == fingerprint("shell", backwards)
    assert fingerprint("shell", arguments) != fingerprint("shell2", arguments)


def test_attack_9_an_approval_holds_for_the_exact_arguments() -> None:
    several: list[dict[str, Any]] = [
        {"command": "ls"},
        {"command": "ls "},
        {"command": ["ls"]},
        {"command": "ls", "timeout_s": 1},
        {"command": "ls", "timeout_s": 1.0},
        {"command": "ls", "timeout_s": True},
        {"command": "ls", "timeout_s": "1"},
        {"command": "l\u0073\u0301"},
        {"command": "l\u015b"},
        {"command": None},
        {},
    ]
    assert len({fingerprint("shell", arguments) for arguments in several}) == len(several)


@pytest.mark.parametrize("value", [float("nan"), object(), b"x"])
def test_attack_9_what_is_not_json_has_no_fingerprint(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        fingerprint("shell", {"command": value})
