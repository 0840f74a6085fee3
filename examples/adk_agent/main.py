"""Run the ADK agent beside this file in ADK's Runner, with durable sessions: two lines are Lango's.

    GOOGLE_API_KEY=... python main.py "Where is parcel A17?"
    GOOGLE_API_KEY=... python main.py "And is it far?"        # another process continues the same session

For turns, recovery, approvals and a web page, serve it unchanged: `lango serve` (see lango.toml).
"""

import asyncio
import sys

from agent import root_agent
from google.adk.runners import Runner
from google.genai import types

# the first line; it was: from google.adk.sessions import InMemorySessionService
from lango.adk import SqlSessionService

APP, USER, SESSION = "parcels", "alice", "first"


async def main(text: str) -> None:
    """Send one message."""
    service = SqlSessionService("sqlite:///parcels.db")  # the second line; it was: InMemorySessionService()
    runner = Runner(app_name=APP, agent=root_agent, session_service=service)
    if await service.get_session(app_name=APP, user_id=USER, session_id=SESSION) is None:
        await service.create_session(app_name=APP, user_id=USER, session_id=SESSION)
    message = types.UserContent(text)
    async for event in runner.run_async(user_id=USER, session_id=SESSION, new_message=message):
        for part in (event.content and event.content.parts) or ():
            if part.text:
                print(part.text)
    await runner.close()
    await service.close()


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:]) or "Where is parcel A17?"))
