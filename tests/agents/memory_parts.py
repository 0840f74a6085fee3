"""What tests of memory share: a provider that answers as agent, observer and reflector, each from its own script."""

import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from lango import Settings
from lango.memory.notes.note_format import OBSERVE_PROMPT, REFLECT_PROMPT
from lango.providers import Request
from lango.runtime.runtime import Runtime
from lango.sessions import SessionId, SessionInfo
from lango.store.sessions.sessions import find_session
from lango.testing import Answer, ScriptedProvider
from tests.support.runtimes import store_of

Role = Callable[[Request], Answer] | Callable[[Request], Awaitable[Answer]]
_NUMBERS = re.compile(r"^#(\d+) ", re.MULTILINE)


def remembering(url: str, *, history: dict[str, Any] | None = None, **memory: Any) -> Settings:
    """Settings with memory on, and a threshold that a hundred words pass."""
    options = {"enabled": True, "observe_at_tokens": 90, "reflect_at_tokens": 100_000, "keep_turns": 1} | memory
    return Settings.model_validate({"store": {"url": url}, "memory": options, "history": history or {}})


def shown_to(request: Request) -> str:
    return request.messages[-1].content


def noted(request: Request) -> str:
    """An observer that notes every line it is shown, word for word."""
    lines = shown_to(request).splitlines()
    return "\n".join(f"- [medium] ({line[1:].split(' ')[0]}) said: {line}" for line in lines if line.startswith("#"))


def halved(request: Request) -> str:
    """A reflector that keeps the beginning of each note."""
    return "\n".join(" ".join(line.split()[:18]) for line in shown_to(request).splitlines() if line.startswith("-"))


class Roles:
    """A provider for all three roles."""

    def __init__(self, agent: Role = lambda _: "yes", observer: Role = noted, reflector: Role = halved) -> None:
        self.agent: list[Request] = []
        self.observer: list[Request] = []
        self.reflector: list[Request] = []
        self._roles = {OBSERVE_PROMPT: (self.observer, observer), REFLECT_PROMPT: (self.reflector, reflector)}
        self._agent = agent
        self.provider = ScriptedProvider(self.script())

    def script(self) -> Iterator[Any]:
        """The same answer for every call: the request shows which role asks."""
        while True:
            yield self._answer

    def _answer(self, request: Request) -> Answer | Awaitable[Answer]:
        for prompt, (requests, answer) in self._roles.items():
            if request.system.startswith(prompt):
                requests.append(request)
                return answer(request)
        self.agent.append(request)
        return self._agent(request)


def numbers_in(text: str) -> list[int]:
    """Return the numbers of the messages that an observer was shown."""
    return [int(number) for number in _NUMBERS.findall(text)]


async def session_of(runtime: Runtime, session_id: str = "s", user_id: str = "user") -> SessionInfo:
    session = await store_of(runtime).read(find_session, SessionId(runtime.app_name, user_id, session_id))
    assert session
    return session


def quoted(request: Request) -> str:
    """Return what a request quotes of the memory."""
    return "\n".join(message.content for message in request.messages if message.author == "context")


def spoken(request: Request) -> list[str]:
    return [message.content for message in request.messages if message.author != "context"]
