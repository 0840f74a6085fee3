"""An agent whose observer notes every message word for word, and a fact of every message that begins with `fact`."""

from google.adk.agents import LlmAgent

from lango.adk import ProviderLlm
from lango.providers import Request
from tests.agents.memory_parts import Roles, noted, shown_to


def observer(request: Request) -> str:
    lines = [line for line in shown_to(request).splitlines() if " user: fact " in line]
    facts = [f"- [fact] ({line[1:].split(' ')[0]}) {line.partition(' user: fact ')[2]}" for line in lines]
    return "\n".join([noted(request), *facts])


root_agent = LlmAgent(name="obedient", model=ProviderLlm(Roles(observer=observer).provider, "scripted"))
