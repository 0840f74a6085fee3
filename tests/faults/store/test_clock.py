"""The order of messages does not depend on clocks."""

import pytest
from google.adk.events import Event
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types

from lango.adk.services.session_service import SqlSessionService

TIMES = {
    "equal": [1_000.0] * 30,
    "back": [1_000.0 - n for n in range(30)],
    "jumping": [1_000.0 + (n * 7919 % 30) for n in range(30)],
    "before 1970": [-5.0, -1.0, 0.0] * 10,
}


@pytest.mark.parametrize("times", TIMES.values(), ids=list(TIMES))
async def test_s2_equal_and_backward_times_change_nothing(service: SqlSessionService, times: list[float]) -> None:
    session = await service.create_session(app_name="app", user_id="user", session_id="s")
    for n, time in enumerate(times):
        content = types.Content(role="user", parts=[types.Part(text=f"{n}")])
        await service.append_event(session, Event(author="user", timestamp=time, content=content))
    expected = [(f"{n}", time) for n, time in enumerate(times)]
    for budget_tokens in (None, 32_000):
        other = SqlSessionService("", store=service.store, budget_tokens=budget_tokens)
        loaded = await other.get_session(app_name="app", user_id="user", session_id="s")
        assert texts(loaded) == expected
        newest = GetSessionConfig(num_recent_events=7)
        loaded = await other.get_session(app_name="app", user_id="user", session_id="s", config=newest)
        assert texts(loaded) == expected[-7:]
    assert loaded
    content = types.Content(role="user", parts=[types.Part(text="last")])
    await service.append_event(session, Event(author="user", timestamp=-1e9, content=content))
    loaded = await service.get_session(app_name="app", user_id="user", session_id="s")
    assert texts(loaded) == [*expected, ("last", -1e9)]


def texts(session: object) -> list[tuple[str, float]]:
    events: list[Event] = getattr(session, "events", [])
    return [(e.content.parts[0].text or "", e.timestamp) for e in events if e.content and e.content.parts]
