"""`lango sessions` as users run it: search, rename, fork, rewind, export, import."""

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lango.history import count_tokens
from lango.messages import Message
from lango.sessions import SessionId
from lango.store import NewEvent, Store
from lango.store.sessions.sessions import create_session
from tests.e2e.cli.test_commands import lango, refused

TEXTS = ["where is Bern", "in Switzerland", "and \x1b[31m Oslo", "in Norway"]


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    async with Store(f"sqlite:///{tmp_path}/lango.db") as store:
        await fill(store, SessionId("app", "alice", "first"), TEXTS)
    return tmp_path


async def fill(store: Store, name: SessionId, texts: list[str]) -> None:
    record = await store.write(create_session, name, {"turns": 0}, time.time())
    for number, text in enumerate(texts):
        role = "assistant" if number % 2 else "user"
        message = Message(role, text, author=role)
        delta = {"turns": number // 2 + 1}
        entry = NewEvent(f"e{number}", time.time(), message, count_tokens(message), f"i{number // 2}", delta)
        await store.append(record.key, name, number, entry)


def objects(*arguments: str, cwd: Path) -> list[dict[str, Any]]:
    run = lango("sessions", *arguments, "--json", cwd=cwd)
    assert run.returncode == 0, run
    return [json.loads(line) for line in run.stdout.splitlines()]


def shown(folder: Path, session: str) -> list[str]:
    return [one["content"] for one in objects("show", session, cwd=folder)]


def test_a_session_is_forked_named_and_listed(folder: Path) -> None:
    made = lango("sessions", "fork", "first", "--at", "2", "--id", "second", cwd=folder)
    assert (made.returncode, made.stdout) == (0, "second\n")
    assert shown(folder, "second") == TEXTS[:2]
    named = lango("sessions", "rename", "second", "The\nother way", cwd=folder)
    assert named.stdout == "second has the title 'The other way'\n"
    titles = {one["id"]: one["title"] for one in objects("list", cwd=folder)}
    assert titles == {"first": "where is Bern", "second": "The other way"}
    table = lango("sessions", "list", cwd=folder).stdout
    assert "where is Bern" in table
    [whole] = objects("fork", "second", "--title", "Mine", cwd=folder)
    assert (whole["title"], whole["messages"]) == ("Mine", 2)
    refused(lango("sessions", "fork", "first", "--at", "9", cwd=folder), "no message 9")
    refused(lango("sessions", "fork", "first", "--id", "second", cwd=folder), "'second' already exists")
    refused(lango("sessions", "fork", "third", cwd=folder), "'third'", "lango sessions list")


async def test_one_session_is_found_without_reading_the_others(folder: Path) -> None:
    async with Store(f"sqlite:///{folder}/lango.db") as store:
        await store.write(create_session, SessionId("app", "bob", "second"), {"a": 1}, time.time())
        await store.write(create_session, SessionId("app", "bob", "first"), {"a": 1}, time.time())
    with sqlite3.connect(folder / "lango.db") as file:  # makes this session unreadable
        of_second = "session_key IN (SELECT session_key FROM sessions WHERE id = 'second')"
        file.execute(f"UPDATE session_states SET state = 'broken' WHERE {of_second}")
    file.close()
    refused(lango("sessions", "show", "first", cwd=folder), "2 sessions", "--app and --user")
    assert [one["content"] for one in objects("show", "first", "--user", "alice", cwd=folder)] == TEXTS
    assert objects("show", "first", "--user", "bob", "--app", "app", cwd=folder) == []
    refused(lango("sessions", "show", "first", "--user", "carol", cwd=folder), "no session 'first'")
    refused(lango("sessions", "show", "a\udc80", cwd=folder), "there is no session")
    assert [one["user"] for one in objects("search", "switz", cwd=folder)] == ["alice"]


def test_a_turn_is_rewound(folder: Path) -> None:
    done = lango("sessions", "rewind", "first", "--before", "4", cwd=folder)
    assert (done.returncode, done.stdout) == (0, "first is as it was before the turn of message 4\n")
    assert shown(folder, "first") == TEXTS[:2]
    refused(lango("sessions", "rewind", "first", "--before", "4", cwd=folder), "no message 4", "rewound")


def test_messages_are_found_by_words(folder: Path) -> None:
    [hit] = objects("search", "switz", cwd=folder)
    assert (hit["session_id"], hit["seq"], hit["user"], hit["marks"]) == ("first", 2, "alice", [[3, 14]])
    table = lango("sessions", "search", "oslo", cwd=folder).stdout
    assert "\x1b" not in table
    assert "first" in table
    assert lango("sessions", "search", "no", "such", "words", cwd=folder).stdout == "nothing found\n"
    assert objects("search", "in", "--user", "bob", cwd=folder) == []
    assert len(objects("search", "in", "--limit", "1", cwd=folder)) == 1


async def test_sessions_are_exported_and_imported(folder: Path) -> None:
    async with Store(f"sqlite:///{folder}/lango.db") as store:
        await fill(store, SessionId("other", "bob", "second"), ["hello"])
    out = lango("sessions", "export", "first", "-o", "first.jsonl", cwd=folder)
    assert (out.returncode, out.stdout, out.stderr) == (0, "exported 1 session to first.jsonl\n", "")
    assert lango("sessions", "export", "first", cwd=folder).stdout == (folder / "first.jsonl").read_text()
    refused(lango("sessions", "import", "first.jsonl", cwd=folder), "'first' already exists")
    [copied] = objects("import", "first.jsonl", "--id", "copy", "--user", "carol", cwd=folder)
    assert (copied["id"], copied["user"], copied["app"], copied["messages"]) == ("copy", "carol", "app", 4)
    assert shown(folder, "copy") == TEXTS
    assert lango("sessions", "delete", "copy", cwd=folder).returncode == 0
    page = lango("sessions", "export", "first", "--format", "html", cwd=folder).stdout
    assert page.startswith("<!DOCTYPE html>")
    assert page.endswith("</html>\n")
    out = lango("sessions", "export", "first", "--format", "markdown", "-o", "first.md", cwd=folder)
    assert out.returncode == 0, out
    assert (folder / "first.md").read_text().startswith("# ")
    assert lango("sessions", "export", "--all", "-o", "all.jsonl", cwd=folder).returncode == 0
    whole = lango("sessions", "import", "all.jsonl", "--store", "sqlite:///new.db", cwd=folder)
    assert whole.stdout == "imported first: 4 messages\nimported second: 1 messages\n"
    again = lango("sessions", "export", "--all", "--store", "sqlite:///new.db", cwd=folder)
    assert again.stdout == (folder / "all.jsonl").read_text(), "the same bytes"


def test_failed_exports_and_imports_are_one_line_errors(folder: Path) -> None:
    refused(lango("sessions", "export", cwd=folder), "name a session, or use --all")
    refused(lango("sessions", "export", "first", "--all", cwd=folder), "name a session, or use --all")
    refused(
        lango("sessions", "export", "--all", "--format", "html", cwd=folder), "--format html writes one conversation"
    )
    refused(lango("sessions", "export", "first", "-o", "no/such/folder", cwd=folder), "cannot be written")
    refused(lango("sessions", "import", "nothing.jsonl", cwd=folder), "nothing.jsonl cannot be read")
    (folder / "wrong.jsonl").write_text("hello\n")
    refused(lango("sessions", "import", "wrong.jsonl", cwd=folder), "line 1 is not JSON of this format")
    (folder / "empty.jsonl").write_text("")
    refused(lango("sessions", "import", "empty.jsonl", cwd=folder), "cut off")


async def test_check_reports_problems_and_their_place(folder: Path) -> None:
    async with Store(f"sqlite:///{folder}/lango.db") as store:
        await fill(store, SessionId("app", "bob", "second"), TEXTS)
    whole = lango("sessions", "check", cwd=folder)
    assert (whole.returncode, whole.stdout, whole.stderr) == (0, "2 sessions checked: no problems\n", "")
    assert lango("sessions", "check", "first", "--json", cwd=folder).stdout == ""
    refused(lango("sessions", "check", "third", cwd=folder), "'third'", "lango sessions list")
    with closing(sqlite3.connect(folder / "lango.db")) as connection, connection:
        connection.execute("UPDATE messages SET total_tokens = 99 WHERE seq = 2")
        connection.execute("UPDATE session_states SET state = 'x'")
    wrong = lango("sessions", "check", "second", cwd=folder)
    assert (wrong.returncode, wrong.stdout) == (
        1,
        "second: the session, or its state, cannot be read (JSONDecodeError)\n",
    )
    with closing(sqlite3.connect(folder / "lango.db")) as connection, connection:
        connection.execute("UPDATE session_states SET state = '{\"turns\":2}'")
        connection.execute("DELETE FROM sessions WHERE id = 'second'")
    every = lango("sessions", "check", "--json", cwd=folder)
    assert every.returncode == 1
    stray, total, *_ = [json.loads(line) for line in every.stdout.splitlines()]
    assert stray == {"problem": "4 messages belong to no session"}
    assert (total["session"], total["seq"]) == ("first", 2)
    assert "is 99" in total["problem"]


def test_check_reports_a_damaged_file(folder: Path) -> None:
    path = folder / "lango.db"
    page = 4096
    with path.open("r+b") as file:
        for at in range(2 * page, path.stat().st_size, page):  # the schema can be read, and nothing else
            file.seek(at)
            file.write(b"\xff" * 200)
    run = lango("sessions", "check", cwd=folder)
    assert run.returncode in (1, 2)
    assert "Traceback" not in run.stderr
    assert "SQLite finds" in run.stdout or "lango.db" in run.stderr


async def test_the_beginning_of_an_id_is_enough(folder: Path) -> None:
    async with Store(f"sqlite:///{folder}/lango.db") as store:
        for name in ("5e55104a0001", "5e55104b0002"):
            await fill(store, SessionId("app", "alice", name), TEXTS[:2])
    assert shown(folder, "5e55104b") == TEXTS[:2]
    assert lango("sessions", "rename", "5e55104a", "Mine", cwd=folder).stdout == "5e55104a0001 has the title 'Mine'\n"
    refused(lango("sessions", "delete", "5e55", cwd=folder), "2 sessions begin with '5e55': give more of the id (5e55")
    assert lango("sessions", "delete", "5e55104a", cwd=folder).stdout == "deleted 5e55104a0001\n"
    missing = lango("sessions", "show", "5e5", "--store", "sqlite:///lango.db", cwd=folder)
    assert "`lango sessions list --store sqlite:///lango.db` lists them" in missing.stderr
