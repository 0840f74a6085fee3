"""Name sessions, or derive a title from the user's first words."""

from msgspec.structs import astuple, replace

from lango.errors import SessionNotFound, Unstorable
from lango.json_values import storable_text
from lango.sessions import MAX_TITLE, SessionId, SessionInfo
from lango.store.engine.database import Operation
from lango.store.sessions.lineage import all_row_ranges, live_ranges

DERIVED_TITLE_LENGTH = 80
"""How many characters of the first message are shown as a title."""

_SEARCHED_MESSAGES = 20  # a session that the user did not start has no first words
READ_CHARACTERS = 400
"""How many characters of a message are read for its first words."""

_SET = "UPDATE sessions SET title = $1 WHERE app_name = $2 AND user_id = $3 AND id = $4 RETURNING session_key"
_FIRST = f"""
SELECT SUBSTR(content, 1, {READ_CHARACTERS}) FROM messages
WHERE session_key = $1 AND seq >= $2 AND seq <= $3 AND role = 'user' AND content <> '' ORDER BY seq LIMIT 1
"""  # noqa: S608 - constants
FIRST_WORDS_COLUMN = f"""
CASE WHEN s.title IS NULL AND s.forked_from IS NULL AND s.rewinds IS NULL THEN
    (SELECT SUBSTR(m.content, 1, {READ_CHARACTERS}) FROM messages m
     WHERE m.session_key = s.session_key AND m.seq <= {_SEARCHED_MESSAGES} AND m.role = 'user' AND m.content <> ''
     ORDER BY m.seq LIMIT 1) END
"""  # noqa: S608 - constants
"""A column of `sessions s`: the first words of a session without title that is neither a fork nor rewound."""
_ALL_FIRST_WORDS = f"SELECT s.session_key, {FIRST_WORDS_COLUMN} FROM sessions s"  # noqa: S608 - constants


def rename_session(name: SessionId, title: str | None) -> Operation[None]:
    """Set the title of a session; None or white space removes it."""
    kept = clean_title(title)
    if not name.is_storable or not (yield _SET, (kept, *astuple(name))):
        raise SessionNotFound(f"there is no session {name.id!r}")


def clean_title(title: str | None) -> str | None:
    """Return a title on one line. Raise `Unstorable` if it is too long."""
    kept = " ".join(storable_text(title or "").split())
    if len(kept) > MAX_TITLE:
        raise Unstorable(f"a title has at most {MAX_TITLE} characters; this one has {len(kept)}")
    return kept or None


def shorten_title(text: str | None) -> str:
    """Return the beginning of a text as a title."""
    words = " ".join((text or "").split())
    return words if len(words) <= DERIVED_TITLE_LENGTH else words[: DERIVED_TITLE_LENGTH - 1].rstrip() + "…"


def with_first_words(session: SessionInfo) -> Operation[SessionInfo]:
    """Add the first words to a session without title."""
    if session.title or session.first_words:
        return session
    live = all_row_ranges(session, live_ranges(session.last_seq, session.rewinds))
    for key, first, last in reversed(live):
        rows = yield _FIRST, (key, first, min(last, first + _SEARCHED_MESSAGES))
        if rows:
            return replace(session, first_words=shorten_title(rows[0][0]))
    return session


def with_all_first_words(sessions: list[SessionInfo]) -> Operation[list[SessionInfo]]:
    """Add the first words to the sessions without titles."""
    rows = yield _ALL_FIRST_WORDS, ()
    words = {key: shorten_title(text) for key, text in rows if text}
    titled = [replace(session, first_words=words.get(session.key, "")) for session in sessions]
    return (yield from with_first_words_of_forks(titled))


def with_first_words_of_forks(sessions: list[SessionInfo]) -> Operation[list[SessionInfo]]:
    """Add the first words that `FIRST_WORDS_COLUMN` lacks: to forks and rewound sessions without titles."""
    found = list(sessions)
    for place, session in enumerate(sessions):
        if session.forked_from or session.rewinds:
            found[place] = yield from with_first_words(session)
    return found
