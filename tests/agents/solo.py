"""An agent in a file of its own, with a `provider/name` that is Lango's to resolve."""

from google.adk.agents import LlmAgent


def double(number: int) -> dict[str, int]:
    """Double a number.

    Args:
        number: The number.
    """
    return {"doubled": number * 2}


root_agent = LlmAgent(name="solo", model="openai/gpt-x", instruction="You are solo.", tools=[double])
