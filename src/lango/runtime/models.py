"""Check and ask the configured models without an agent."""

from typing import Self

from lango.adk.agents.model_registry import ModelRegistry
from lango.config import Settings
from lango.messages import Message
from lango.providers import Provider, Request
from lango.providers.protocol import closing_stream
from lango.providers.reply_assembly import ReplyAssembler


class Models:
    """The configured models by their names `provider/name`; `provider` answers instead of the configured ones."""

    def __init__(self, settings: Settings, provider: Provider | None = None) -> None:
        self._registry = ModelRegistry(settings, provider)

    async def __aenter__(self) -> Self:
        """Return the models."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections of the providers."""
        await self.close()

    def require(self, model: str) -> None:
        """Raise an error if the key, the weights or the provider of a model is missing."""
        self._registry.get(model)

    async def check(self, model: str, *, send: bool = True) -> str:
        """Check a model and, with `send`, that it answers; return the reason of a failure that may pass, or "".

        Raise an error for a wrong name, a missing key, missing weights and a request that the provider rejects.
        """
        return await self._registry.check(model, send=send)

    async def ask(self, model: str, prompt: str, *, system: str) -> str:
        """Send a prompt and return the text of the answer."""
        made = self._registry.get(model)
        reply = ReplyAssembler(made.provider.name)
        request = Request(made.model, (Message("user", prompt),), system=system)
        async with closing_stream(made.provider.stream(request)) as deltas:
            async for delta in deltas:
                reply.add(delta)
        return reply.reply().text

    async def close(self) -> None:
        """Close the connections of the providers."""
        await self._registry.close()
