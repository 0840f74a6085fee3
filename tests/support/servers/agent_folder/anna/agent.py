"""Anna, one of two agents in a folder as `adk web` takes it."""

from echo import Echo  # the folder of the agents is on the path, as with ADK
from google.adk.agents import LlmAgent

from lango.adk import ProviderLlm

root_agent = LlmAgent(
    name="anna", description="This is Anna.", model=ProviderLlm(provider=Echo("anna"), model="echo-anna")
)
