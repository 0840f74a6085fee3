"""A notes assistant: custom tools, user state, and an approval before a note is deleted.

    LANGO_AGENT__MODEL=openai/gpt-5-mini OPENAI_API_KEY=... python notes.py

Each line is a message; an empty line ends. Started again, it continues the session.
"""

import asyncio
import json
from pathlib import Path

from lango import Settings, open_runtime, tool
from lango.errors import LangoError
from lango.events import TextDelta, ToolStart
from lango.runtime import Runtime
from lango.tools import ToolContext
from lango.waits import ApprovalWait, Approve, Refuse

NOTES = Path("notes.json")
INSTRUCTION = """\
You keep the notes of {user:name?}. Save what is worth remembering, look before you answer, and answer in one sentence.
"""


def _read() -> dict[str, dict[str, str]]:
    return json.loads(NOTES.read_text("utf-8")) if NOTES.exists() else {}


def _write(notes: dict[str, dict[str, str]]) -> None:
    NOTES.write_text(json.dumps(notes, indent=2), "utf-8")


@tool(effect="idempotent")  # a second run changes nothing: after a crash the runtime may repeat it
def save_note(title: str, text: str, context: ToolContext) -> str:
    """Save a note; it replaces a note with the same title.

    Args:
        title: A few words by which the note can be found.
        text: What to remember.
    """
    notes = _read()
    notes.setdefault(context.user_id, {})[title] = text
    _write(notes)
    return f"saved {title!r}"


@tool(effect="none")
def find_notes(words: str, context: ToolContext) -> dict[str, str]:
    """Find the notes that contain any of the words; without words, all notes."""
    mine = _read().get(context.user_id, {})
    wanted = words.lower().split()
    return {
        title: text
        for title, text in mine.items()
        if not wanted or any(word in f"{title} {text}".lower() for word in wanted)
    }


@tool(level="write")  # the user must approve it
def delete_note(title: str, context: ToolContext) -> str:
    """Delete a note by its title."""
    notes = _read()
    if title not in notes.get(context.user_id, {}):
        raise LookupError(f"there is no note {title!r}")  # the model reads it, and the turn continues
    del notes[context.user_id][title]
    _write(notes)
    return f"deleted {title!r}"


async def ask(question: str) -> str:
    """Read a line without blocking the event loop."""
    return (await asyncio.to_thread(input, question)).strip()


async def talk(runtime: Runtime, session: str, user: str, line: str) -> None:
    """Send a message, print its events, and answer approval requests."""
    turn = await runtime.submit(session, line, user_id=user)
    while True:
        async for event in turn.follow():
            match event:
                case TextDelta():
                    print(event.text, end="", flush=True)
                case ToolStart():
                    print(f"[{event.name}] ", end="", flush=True)
                case _:
                    pass
        print()
        approvals = [wait for wait in await runtime.waits(session, user_id=user) if isinstance(wait, ApprovalWait)]
        if not approvals:
            return
        wait = approvals[0]
        yes = await ask(f"{wait.tool} {dict(wait.arguments)}: approve? [y/n] ") == "y"
        turn = await runtime.answer(session, wait.id, Approve() if yes else Refuse(), user_id=user)


async def main() -> None:
    """Chat until an empty line."""
    settings = Settings.load()
    settings = settings.model_copy(
        update={"agent": settings.agent.model_copy(update={"name": "notes", "instruction": INSTRUCTION})}
    )
    async with open_runtime(settings, tools=[save_note, find_notes, delete_note]) as runtime:
        user = await ask("Who are you? ") or "user"
        if not await runtime.sessions.list(user_id=user, limit=1):
            await runtime.sessions.create("notes", user_id=user, state={"user:name": user})
        while line := await ask("> "):
            try:
                await talk(runtime, "notes", user, line)
            except LangoError as error:
                print(f"\n{error}")


if __name__ == "__main__":
    asyncio.run(main())
