"""Any chats, interleaved in any way: each model call reads the history of its own request, and nothing else."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Literal

from hypothesis import given
from hypothesis import strategies as st

from lango.errors import ProviderRejected
from lango.providers import Request
from lango.providers.protocol import Delta, Finish, TextDelta, UsageDelta
from lango.runtime.opening import open_runtime
from lango.server.compat.linked_files import LinkedFiles
from lango.server.compat.openai.chat_request import ChatRequest
from lango.server.compat.session_selection import submit_carried_history
from lango.server.context import AgentUser, ServedAgents, ServerContext
from lango.server.security.auth import Caller
from lango.sessions import SessionId
from lango.store.lifecycle.integrity import check_session
from lango.store.sessions.sessions import list_sessions
from lango.submissions import TurnRequest
from tests.agents.parts import TIMEOUT_S, settings_for
from tests.support.examples import examples
from tests.support.runtimes import store_of

Said = list[tuple[str, str]]
Step = tuple[Literal["say", "hold", "fail", "again", "edit", "trim", "alter", "repeat", "both"], int, str]

STEPS = st.tuples(
    st.sampled_from(["say", "say", "say", "hold", "hold", "fail", "again", "edit", "trim", "alter", "repeat", "both"]),
    st.integers(0, 2),
    st.sampled_from(["Hi", "yes"]),  # few texts, so that chats are often equal
)


class Model:
    """A model that answers "ok", or fails, when the test lets it."""

    name = "model"

    def __init__(self) -> None:
        self.calls: asyncio.Queue[tuple[Said, asyncio.Future[bool]]] = asyncio.Queue()

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        may = asyncio.get_running_loop().create_future()
        self.calls.put_nowait(([(one.role, one.content) for one in request.messages], may))
        if not await may:
            raise ProviderRejected("no", provider="model", status=400)
        yield TextDelta("ok")
        yield UsageDelta(1, 1)
        yield Finish("stop")


class Chat:
    """A client's chat; `may` releases the answer under way."""

    def __init__(self, here: ServerContext, model: Model) -> None:
        self.here = here
        self.model = model
        self.messages: Said = []
        self.task: asyncio.Task[None] | None = None
        self.may: asyncio.Future[bool] | None = None

    async def send(self) -> None:
        """Send the whole history, and check that the model reads it."""
        self.task = asyncio.create_task(self._follow())
        call = asyncio.create_task(self.model.calls.get())
        await asyncio.wait([call, self.task], return_when=asyncio.FIRST_COMPLETED)
        if not call.done():
            call.cancel()
            self.task.result()  # raises what ended the turn before it called the model
        read, self.may = await call
        assert read == self.messages

    async def _follow(self) -> None:
        messages: list[dict[str, Any]] = [{"role": role, "content": text} for role, text in self.messages]
        user = AgentUser(self.here, Caller())
        sent = ChatRequest.model_validate({"messages": messages}).read_conversation(
            user.settings.server.limits, LinkedFiles()
        )
        turn = await submit_carried_history(user, sent, TurnRequest(client_tools=()))
        async for _ in self.here.turns.follow(turn):
            pass

    async def finish(self, *, well: bool = True) -> None:
        if self.task is None or self.may is None:
            return
        self.may.set_result(well)
        await self.task
        self.task = self.may = None
        if well:
            self.messages.append(("assistant", "ok"))

    async def step(self, kind: str, word: str) -> None:
        await self.finish()
        history, last = self.messages, len(self.messages) - 1
        match kind:
            case "again":
                while history and history[-1][0] == "assistant":
                    history.pop()
            case "edit" if history:
                history[0] = ("user", f"{word}!")
            case "trim":
                del history[:2]
            case "alter" if last >= 1:
                history[1] = ("assistant", f"{word}?")
            case "repeat":
                history += history[:2]
            case "both":
                history.append(("user", word))
            case _:
                pass
        if kind != "again" or not history:
            history.append(("user", word))
        await self.send()
        if kind != "hold":
            await self.finish(well=kind != "fail")


async def _run(steps: list[Step]) -> None:
    model = Model()
    config = settings_for("sqlite:///:memory:", name="app")
    async with asyncio.timeout(TIMEOUT_S), open_runtime(config, provider=model) as runtime:
        here = ServedAgents(config, [runtime]).default
        chats = [Chat(here, model) for _ in range(3)]
        for kind, number, word in steps:
            await chats[number].step(kind, word)
        for chat in chats:
            await chat.finish()
        await here.turns.drain(TIMEOUT_S)
        for one in await store_of(runtime).read(list_sessions):
            assert (
                await store_of(runtime).read(check_session, SessionId(one.name.app_name, one.name.user_id, one.name.id))
                == []
            )


@examples(30)
@given(st.lists(STEPS, min_size=4, max_size=14))
def test_a_model_reads_the_history_of_its_request(steps: list[Step]) -> None:
    asyncio.run(_run(steps))
