"""An agent that reports an error as ADK's remote agents do: by an event with a message and without a code."""

from collections.abc import AsyncGenerator

from google.adk.agents import BaseAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events import Event
from typing_extensions import override

REPORTED = "the remote agent refused"


class FailingAgent(BaseAgent):
    """Reports an error; if `recovers`, it then answers."""

    recovers: bool = False

    @override
    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        """Report the error."""
        more = {"author": self.name, "invocation_id": ctx.invocation_id, "branch": ctx.branch}
        yield Event.model_validate({"error_message": REPORTED, **more})
        if self.recovers:
            yield Event.model_validate({"content": {"role": "model", "parts": [{"text": "recovered"}]}, **more})


root_agent = FailingAgent(name="failing")
