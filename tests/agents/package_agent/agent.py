"""An app in a package, with a plugin of its own."""

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.plugins import BasePlugin


class Counting(BasePlugin):
    """Counts the calls of the model."""

    def __init__(self) -> None:
        super().__init__(name="counting")
        self.calls = 0

    async def before_model_callback(self, **_: object) -> None:
        self.calls += 1


counting = Counting()
root_agent = LlmAgent(name="packaged", model="openai/gpt-x", instruction="You are packaged.")
app = App(name="package_agent", root_agent=root_agent, plugins=[counting])
