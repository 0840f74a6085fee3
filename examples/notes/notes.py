"""A notes assistant: tools of your own, state of the user, and a question before something is deleted.

    LANGO_AGENT__MODEL=openai/gpt-5-mini OPENAI_API_KEY=... python notes.py

Talk to it line by line; an empty line ends. Start it again: it goes on where it was.
"""

import asyncio
import json
from pathlib import Path

from lango import Settings, open_runtime, tool
from lango.errors import LangoError
from lango.events import ApprovalNeeded, TextDelta, ToolStart
from lango.runtime import Runtime
from lango.tools import ToolContext

NOTES = Path("notes.json")
INSTRUCTION = """\
You keep the notes of {user:name?}. Save what is worth remembering, look before you answer, and answer in one sentence.
"""


def _read() -> dict[str, dict[str, str]]:
    return json.loads(NOTES.read_text("utf-8")) if NOTES.exists() else {}


def _write(notes: dict[str, dict[str, str]]) -> None:
    NOTES.write_text(json.dumps(notes, indent=2), "utf-8")


@tool(effect="idempotent")  # a second run changes nothing: after a crash it may simply run again
def save_note(title: str, text: str, context: ToolContext) -> str:
    """Save a note; one of the same title is replaced.

    Args:
        title: A few words by which the note is found again.
        text: What to remember.
    """
    notes = _read()
    notes.setdefault(context.user_id, {})[title] = text
    _write(notes)
    return f"saved {title!r}"


@tool(effect="none")
def find_notes(words: str, context: ToolContext) -> dict[str, str]:
    """Find the notes that hold any of some words; no words: all notes."""
    mine = _read().get(context.user_id, {})
    wanted = words.lower().split()
    return {
        title: text
        for title, text in mine.items()
        if not wanted or any(word in f"{title} {text}".lower() for word in wanted)
    }


@tool(level="write")  # changes something that was there: the user is asked first
def delete_note(title: str, context: ToolContext) -> str:
    """Delete a note by its title."""
    notes = _read()
    if title not in notes.get(context.user_id, {}):
        raise LookupError(f"there is no note {title!r}")  # the model is told, and the turn goes on
    del notes[context.user_id][title]
    _write(notes)
    return f"deleted {title!r}"


async def ask(question: str) -> str:
    """Read a line while turns go on."""
    return (await asyncio.to_thread(input, question)).strip()


async def talk(runtime: Runtime, session: str, user: str, line: str) -> None:
    """Send a message, show what happens, and ask where a tool asks."""
    events = runtime.stream(session, line, user_id=user)
    while True:
        asked: ApprovalNeeded | None = None
        async for event in events:
            match event:
                case TextDelta():
                    print(event.text, end="", flush=True)
                case ToolStart():
                    print(f"[{event.name}] ", end="", flush=True)
                case ApprovalNeeded():
                    asked = event
                case _:
                    pass
        print()
        if asked is None:
            return
        yes = await ask(f"{asked.name} {dict(asked.arguments)}: may it? [y/n] ") == "y"
        events = runtime.approve(session, asked.call_id, approved=yes, user_id=user)


async def main() -> None:
    """Talk until an empty line."""
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
