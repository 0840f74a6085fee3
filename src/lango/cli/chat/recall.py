"""`/memory`: what is remembered of this conversation, and of its user."""

from typing import TYPE_CHECKING

from lango.cli.session_target import USER
from lango.cli.tables import make_table

if TYPE_CHECKING:
    from lango.cli.chat.chat_session import Chat

_OFF = "memory is off: `enabled = true` under [memory] in lango.toml turns it on"


async def show(chat: "Chat", rest: str) -> None:
    """Show the notes with the messages that they came from, and the facts."""
    del rest
    memory = chat.runtime.memory
    notes = [] if chat.place.new else (await memory.show(chat.place.session_id, user_id=USER)).as_json()
    for note in notes:
        chat.screen.say(f"[{note['priority']}] {note['day']} {note['text']}")
        chat.screen.say(f"    from messages {note['first_seq']} to {note['last_seq']}", "dim")
    facts = await memory.facts(user_id=USER)
    if facts:
        chat.screen.say("known of you in every conversation (`lango memory forget ID` deletes one):", "bold")
        chat.screen.show(make_table([{"id": str(one.id), "what": one.name, "is": one.text} for one in facts]))
    if not notes and not facts:
        chat.screen.say("nothing is remembered yet" if chat.settings.memory.enabled else _OFF)
