"""A plain ADK agent, as in ADK's tutorials. This file does not import Lango."""

from google.adk.agents import LlmAgent

PARCELS = {"A17": "in the van, 3 stops away", "B02": "waits at the post office until Friday"}


def track_parcel(number: str) -> dict[str, str]:
    """Say where a parcel is.

    Args:
        number: The number on the receipt.
    """
    if number not in PARCELS:
        return {"status": "unknown", "message": f"there is no parcel {number}"}
    return {"status": "found", "where": PARCELS[number]}


root_agent = LlmAgent(
    name="parcels",
    model="gemini-3.5-flash",
    instruction="You answer questions about parcels. Track a parcel before you say where it is.",
    tools=[track_parcel],
)
