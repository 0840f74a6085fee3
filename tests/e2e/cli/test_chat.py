"""`lango chat` in a real terminal: typed keys, read from the screen. Most tests share one process."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lango.sessions import SessionId
from lango.store import Store
from lango.store.memory.observations import Batch, Observation
from lango.store.memory.observer_lease import acquire_observer_lease, release_observer_lease, store_batch
from lango.store.memory.user_facts import Fact
from lango.store.sessions.sessions import find_session
from tests.support.terminal import ALT_ENTER, CTRL_C, CTRL_O, ENTER, UP, Terminal, terminal


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("chat")


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Terminal]:
    with terminal(folder, "chat") as opened:
        opened.wait_prompt()
        assert "gpt-5-mini" in opened.lines[0]
        yield opened


@pytest.fixture
def chat(running: Terminal) -> Terminal:
    """A new session at an empty prompt."""
    before = running.prompts
    running.send("/clear")
    running.wait_for(lambda: running.prompts > before and running.shown.startswith("new session"))
    running.wait_prompt()
    return running


def session_of(chat: Terminal) -> str:
    found = re.findall(r"new session (\w{12})", chat.text)
    return found[-1]


def test_an_answer_streams_and_its_scrollback_is_clean(chat: Terminal, folder: Path) -> None:
    chat.send(f"hold {folder}/go")
    chat.wait_for("begun")
    chat.wait_for("Ctrl-C stops")  # the tail shows the activity
    (folder / "go").touch()
    chat.wait_for("begun ended")
    chat.wait_prompt()
    assert chat.text.count("begun") == 1, "drawn many times, kept once"
    assert "Ctrl-C stops\n" not in chat.shown, "the tail is gone"


def test_markdown_is_laid_out(chat: Terminal) -> None:
    shown = chat.ask("markdown")
    assert shown == (
        "\n# Prices\n\nThe best of them:\n\n fruit   price\n ─────────────\n apple    1.50\n 日本梨  12.00\n\n"
        " 1 first\n 2 second\n\n def total(prices):\n     return sum(prices)\n\nThe end.\n"
    )


def test_an_answer_longer_than_the_screen_is_kept_whole(chat: Terminal) -> None:
    shown = chat.ask("long 100")
    assert re.findall(r"• item (\d+)", shown) == [str(number) for number in range(100)]


def test_a_tool_is_a_line_that_opens(chat: Terminal) -> None:
    shown = chat.ask("note apples", "the tool said")
    [number] = re.findall(r'▸ (\d+) note\(text="apples"\) \d+\.\d s', shown)
    assert "arguments" not in shown
    chat.type(CTRL_O)
    chat.wait_for(f"▾ {number} note")
    chat.wait_for("      three")
    chat.wait_prompt()
    chat.ask("think", "thought 5 words", "seven")
    opened = chat.ask(f"/open {number}", "arguments", "    text: apples", "    noted: apples")
    assert "      one\n      two\n      three" in opened, "a text of several lines is shown as one"
    chat.ask("/open", "first I count the apples")
    chat.ask("/open 9999", "there is no line 9999")
    chat.ask("/open x", "/open takes the number")


def test_withdrawn_text_leaves_the_tail_and_printed_text_is_marked(chat: Terminal, folder: Path) -> None:
    shown = chat.ask(f"fail once {folder}/failed the whole answer", "the whole answer")
    assert "\nresumed: the provider or the store failed\n" in shown
    assert shown.count("the answer above is withdrawn and begins again") == 1
    before, _, after = shown.partition("withdrawn and begins again")
    assert "half of it is said" in before
    assert "\nis\n" not in before, "only the tail had it"
    assert after.split() == ["the", "whole", "answer"]


def test_failures_are_reported(chat: Terminal, folder: Path) -> None:
    chat.ask("/error", "no tool, node or callback has raised an error")
    chat.ask("broken things", "✗", "broken(text=", "failed: ", "cannot do things")
    raised = chat.ask("/error", "tool broken failed", "terminal_agent.py", "_broken", "of libraries]")
    assert "in run_tool" not in raised
    assert "in run_tool" in chat.ask("/error all")
    chat.ask("/error x", "/error shows the newest error")
    with terminal(folder, "chat", "-r", session_of(chat)) as another:
        another.wait_prompt()
        another.ask("/error", "tool broken failed", "terminal_agent.py", "_broken")
    chat.ask("fail", "the provider does not want to")
    chat.ask("/nothing", "unknown command /nothing; /help")
    assert "\n/etc/hosts is a path\n" in chat.ask("/etc/hosts is a path"), "not a command"


def test_approval_by_a_key(chat: Terminal) -> None:
    chat.send("wipe disk1")
    chat.wait_for("run exactly this?")
    assert 'wipe asks to run with\n{\n  "text": "disk1"\n}\n' in chat.text
    chat.type("x" + ENTER)  # no answer
    chat.type("n")
    chat.wait_for('no: wipe(text="disk1")')
    chat.wait_prompt()
    assert "'noted'" not in chat.after("wipe disk1")
    chat.send("wipe disk2")
    chat.wait_for('"text": "disk2"')
    chat.wait_for("run exactly this?")
    chat.type("y")
    chat.wait_for('yes: wipe(text="disk2")')
    chat.wait_for("the tool said {'noted': 'disk2'")
    chat.wait_prompt()
    chat.send("/fork")
    chat.wait_for("continuing in session")
    chat.wait_prompt()
    again = chat.after("/fork")
    assert [again.count(f'wipe(text="{disk}")') for disk in ("disk1", "disk2")] == [1, 1], (
        "request and result are one call"
    )
    chat.send("write list.txt milk/bread and a text that is long enough to be shown as it is, in lines of its own")
    chat.wait_for('"path": "list.txt"')
    chat.wait_for("run exactly this?")
    asked = chat.after("write list.txt")
    assert '"path": "list.txt"' in asked
    assert "content:\n  milk\n  bread and a text" in asked, "a long text is no JSON"
    assert "changes to the file:\n--- list.txt\n+++ list.txt\n@@ -0,0 +1,2 @@\n+milk\n+bread" in asked
    assert "stopped" not in asked
    chat.type("r")
    chat.wait_for("why not? The model reads it:")
    chat.send("there is butter, too")
    chat.wait_for(lambda: "refused this call. Their reason: there is butter, too" in " ".join(chat.text.split()), "it")
    chat.wait_prompt()


def test_always_lets_later_calls_run_until_it_is_revoked(chat: Terminal) -> None:
    chat.ask("/grants", "nothing is granted")
    chat.send("wipe disk5")
    chat.wait_for("a: always in this session")
    chat.type("a")
    chat.wait_for('always: wipe(text="disk5")')
    chat.wait_for("the tool said {'noted': 'disk5'")
    chat.wait_prompt()
    chat.ask("wipe disk6", "the tool said {'noted': 'disk6'")
    chat.ask("/grants", "wipe", "any", "expires")
    chat.ask("/grants revoke 7", "has no grant 7")
    chat.ask("/grants all", "/grants revoke 1 revokes one")
    chat.ask("/grants revoke 1", "grant 1 is revoked")
    chat.ask("/grants", "revoked")
    chat.send("wipe disk7")
    chat.wait_for(lambda: chat.text.count("run exactly this?") > 0 and '"text": "disk7"' in chat.text)
    chat.type("n")
    chat.wait_for('no: wipe(text="disk7")')
    chat.wait_prompt()


def test_an_approval_request_shows_the_hint_and_payload_of_its_tool(chat: Terminal) -> None:
    chat.send("pay it")
    chat.wait_for("run exactly this?")
    assert 'pay says: This costs 30 euros.\nwith: {"limit": 30}\n' in chat.text
    chat.type("e")
    chat.wait_for("limit (a number; Enter: 30):")
    chat.send("much")
    chat.wait_for(lambda: chat.text.count("limit (a number") == 2)
    assert '"much" is not of type "number"' in chat.text
    chat.send("40")
    chat.wait_for(lambda: "run exactly this?" in chat.text.rpartition('with: {"limit": 40}')[2])
    chat.type("y")
    chat.wait_for("the tool said {'payload': {'limit': 40}")
    chat.wait_prompt()


def test_an_unanswered_approval_request_stays_open(chat: Terminal) -> None:
    chat.send("wipe disk3")
    chat.wait_for("run exactly this?")
    chat.type(CTRL_C)
    chat.wait_for("not answered: /answer asks again")
    chat.wait_prompt()
    chat.send("/answer")
    chat.wait_for(lambda: chat.text.count('"text": "disk3"') == 2)
    chat.wait_for("run exactly this?")
    chat.type("y")
    chat.wait_for("the tool said {'noted': 'disk3'")
    chat.wait_prompt()
    chat.ask("/answer", "nothing is waiting")


def test_skip_closes_an_approval_request(chat: Terminal) -> None:
    chat.send("wipe disk8")
    chat.wait_for("run exactly this?")
    chat.type(CTRL_C)
    chat.wait_for("/skip or any other message denies it")
    chat.wait_prompt()
    chat.ask("/skip", "closed what was waiting for you")
    chat.ask("/answer", "nothing is waiting")


def test_keys_typed_before_the_question_do_not_answer_it(chat: Terminal, folder: Path) -> None:
    """A `y` typed earlier must not approve a dangerous tool."""
    chat.send(f"late {folder}/typed")
    chat.wait_for("begun")
    chat.type("yyyy")
    (folder / "typed").touch()
    chat.wait_for("run exactly this?")
    chat.type("n")
    chat.wait_for('no: wipe(text="disk4")')
    chat.wait_for(lambda: bool(re.search(r"> yyyy\n.* tokens", chat.shown)), "the keys at the prompt")
    chat.type(CTRL_C)
    chat.wait_prompt()
    assert "'noted': 'disk4'" not in chat.text


def test_a_message_typed_during_an_answer_goes_into_it(chat: Terminal, folder: Path) -> None:
    chat.send(f"look {folder}/looked")
    chat.wait_for("begun")
    chat.type("at the sk")
    chat.wait_for("> at the sk")
    chat.wait_for("Enter sends it into this answer")
    chat.type("\x7f\x7fsea" + ENTER)
    chat.wait_for("sent: at the sea")
    (folder / "looked").touch()
    chat.wait_for("\n> at the sea\n")
    chat.wait_for("\nat the sea\n")
    chat.wait_prompt()
    assert "> at the sk" not in chat.text, "the line is redrawn"
    chat.ask("/usage", "steered", "all       2 turns, 2 model calls")


def test_a_message_typed_during_an_answer_follows_it(chat: Terminal, folder: Path) -> None:
    chat.send(f"hold {folder}/follow")
    chat.wait_for("begun")
    chat.send("/usage")
    chat.wait_for("runs after the answer: /usage")
    chat.send("/next plums")
    chat.wait_for("queued: plums")
    chat.type("and a draft")
    chat.wait_for("> and a draft")
    (folder / "follow").touch()
    chat.wait_for("begun ended")
    chat.wait_for("\n> plums\n")
    chat.wait_for("\nplums\n")
    chat.wait_for("\n> /usage\n")
    chat.wait_for("all       2 turns")
    chat.wait_for(lambda: bool(re.search(r"> and a draft\n.* tokens", chat.shown)), "the draft at the prompt")
    assert "the session is busy" not in chat.text
    chat.type(CTRL_C)
    chat.wait_prompt()


def test_a_message_typed_during_an_answer_replaces_it(chat: Terminal) -> None:
    chat.send("hold never")
    chat.wait_for("begun")
    chat.send("/next not this")
    chat.wait_for("queued: not this")
    chat.send("/instead pears")
    chat.wait_for("stopped and removed: your message takes its place")
    chat.wait_for("not answered, as your later message took its place: not this")
    chat.wait_for("\npears\n")
    chat.wait_prompt()
    shown = chat.ask(f"/resume {session_of(chat)}", "> pears")
    assert "hold never" not in shown


def test_ctrl_c_stops_the_turn_and_not_the_program(chat: Terminal) -> None:
    chat.send("hold never")
    chat.wait_for("begun")
    chat.type(CTRL_C)
    chat.wait_for("stopped; the answer so far")
    chat.wait_prompt()
    chat.ask("and on we go", "and on we go")


def test_several_lines_and_history(chat: Terminal, folder: Path) -> None:
    chat.type(f"first{ALT_ENTER}second\\{ENTER}third")
    chat.wait_for(". third")
    before = chat.prompts
    chat.type(ENTER)
    chat.wait_for(lambda: chat.prompts > before)
    chat.wait_prompt()
    assert chat.after("first").startswith(". second\n. third\n"), "one message"
    assert "first second third" in chat.text, "sent as three lines, echoed as one paragraph"
    chat.type(UP)
    chat.wait_for(lambda: chat.shown.count(". third") == 2)
    chat.type(CTRL_C)
    chat.wait_prompt()
    chat.ask(" with a space, not kept")
    chat.ask("my key is sk-proj-0123456789abcdef")
    [file] = [path for path in (folder / "state").rglob("*") if path.is_file()]
    assert file.stat().st_mode & 0o777 == 0o600
    kept = file.read_text()
    assert "+first\n+second\n+third\n" in kept
    assert "sk-proj" not in kept
    assert "not kept" not in kept


def test_commands_complete(chat: Terminal) -> None:
    chat.type("/he")
    chat.wait_for("list the commands")  # the menu
    chat.type("\t")
    chat.wait_for("> /help")
    chat.type(ENTER)
    chat.wait_for("Enter sends; Alt-Enter")
    chat.wait_prompt()


def test_status_line(chat: Terminal) -> None:
    chat.ask("how are you")
    [status] = [line for line in chat.shown.splitlines() if " of 32,000 tokens" in line]
    [tokens, cost] = re.findall(r"(\d+) of 32,000 tokens · \$(\d+\.\d{4})", status)[0]
    assert int(tokens) > 0
    assert float(cost) == pytest.approx(0.00125, abs=0.0001), "1,000 tokens in, 500 out, at gpt-5-mini's price"
    assert session_of(chat) in status
    used = chat.ask("/usage", "budget    32,000 tokens and 100 messages", "all       1 turns, 1 model calls")
    assert re.search(r"1  done +1,000 +500  \$0\.0013", used)


def test_sessions_and_resume(chat: Terminal) -> None:
    first = session_of(chat)
    chat.ask("note pears")
    chat.send("/clear")
    chat.wait_for(f"/resume {first}")
    chat.wait_prompt()
    chat.ask("another conversation")
    listed = chat.ask("/sessions", first)
    assert f"{session_of(chat)} *" in listed
    resumed = chat.ask(f"/resume {first[:8]}", f"session {first}", "> note pears", "the tool said")
    [number] = re.findall(r'▸ (\d+) note\(text="pears"\)', resumed)
    chat.ask(f"/open {number}", "noted: pears")
    assert first in chat.shown.splitlines()[-1] or first in chat.shown, "the status names it"
    chat.ask("/resume abcdefabcdef", "there is no session 'abcdefabcdef'")


def test_models(chat: Terminal) -> None:
    chat.ask("/model", "gpt-5-mini", "/model provider/name")
    chat.ask("/model nowhere/x", "nowhere")
    chat.ask("/model local/nobody", "nobody")
    chat.ask("still here", "still here")
    assert "gpt-5-mini" in chat.shown, "the status line still has it"


def test_text_of_models_and_tools_reaches_the_terminal_escaped(chat: Terminal) -> None:
    from_here = len(chat.raw)
    chat.ask("evil", "␛]52;c;aGVsbG8=␇", "�2J", "turned �txt.exe")
    chat.ask("/open", "␛]0;owned␇")
    written = chat.raw[from_here:].decode()
    for obeyed in ("\x1b]", "\x07", "\b\b", "\x9b", "\u202e", "\x1b[31mred", "\x1b[2J"):
        assert obeyed not in written, repr(obeyed)


def test_fork_and_rewind(chat: Terminal) -> None:
    first = session_of(chat)
    chat.ask("/rewind", "there is no session")
    for text in ("plant apples", "plant pears", "plant plums"):
        chat.ask(text)
    forked = chat.ask("/fork", f"{first} is unchanged", "> plant plums")
    [second] = re.findall(r"continuing in session (\w{12});", forked)
    chat.ask("plant figs")
    chat.send("/rewind 2")
    chat.wait_for("rewound; edit the message")
    chat.wait_for(lambda: bool(re.search(r"> plant plums\n.* tokens", chat.shown)), "the message to be sent again")
    assert "plant figs" not in chat.after("/rewind 2")
    chat.type(" and cherries" + ENTER)
    chat.wait_for("\nplant plums and cherries\n")
    chat.wait_prompt()
    chat.ask(f"/resume {second}", "> plant plums and cherries", "... the beginning")
    chat.ask(f"/resume {first}", "> plant pears", "> plant plums\n")
    chat.ask("/rewind x", "takes a number of turns")
    chat.ask("/rewind 99", "there are only 3 turns")
    listed = chat.ask("/sessions")
    assert listed.count("plant apples") == 2, "both have their first words as title"


def test_h2_the_terminal_shows_where_the_window_begins(tmp_path: Path) -> None:
    why = "a request holds at most 2 messages, which `history.max_messages` in lango.toml changes"
    with terminal(tmp_path, "chat", LANGO_HISTORY__MAX_MESSAGES="2") as chat:
        chat.wait_prompt()
        chat.ask("how is A")
        assert "no longer sees" not in chat.text
        shown = chat.ask("how is B")
        assert f"the model no longer sees the oldest messages (2): {why}" in " ".join(shown.split())
        chat.ask("how is C")
        assert chat.text.count("no longer sees") == 1, "said once"
        resumed = " ".join(chat.ask(f"/resume {session_of(chat)}").split())
        above, _, below = resumed.partition("--- the model no longer sees the messages above: ")
        assert below.startswith(why)
        assert "> how is B" in above
        assert "> how is C" in below


async def test_memory(chat: Terminal, folder: Path) -> None:
    chat.ask("/memory", "memory is off: `enabled = true`")
    chat.ask("I like pears")
    name = SessionId("obedient", "user", session_of(chat))
    async with Store(f"sqlite:///{folder}/lango.db") as store:
        session = await store.read(find_session, name)
        assert session
        held = await store.write(acquire_observer_lease, session.key, "a test")
        assert held
        noted = Observation("The user likes \x1b[31mpears.", 1, 2, "high", "2026-11-15")
        await store.write(store_batch, held, name, Batch(1, 2, (noted,)), [Fact("fruit", "pears", 1, 2)], time.time())
        await store.write(release_observer_lease, held)
    chat.ask("/memory", "1.1 [high] 2026-11-15 The user likes ␛[31mpears.", "from messages 1 to 2", "1   fruit  pears")
    chat.ask("/memory pin 1.1", "done")
    chat.ask("/memory correct 1 plums", "done")
    chat.ask("/memory", "1.1 [pinned] 2026-11-15", "2   fruit  plums")
    chat.ask("/memory forget 1.1", "done")
    chat.ask("/memory forget 2", "done")
    chat.ask("/memory forget 2", "there is no 2")
    chat.ask("/memory correct 2", "use /memory pin ID")


def test_an_unknown_id_starts_a_session_only_if_confirmed(folder: Path) -> None:
    with terminal(folder, "chat", "-r", "typo") as chat:
        chat.wait_for("there is no session 'typo'; `lango sessions list` lists them")
        chat.wait_for("start a new session with this id? [y/N]")
        chat.send("")
        assert chat.wait_end() == 0
    with terminal(folder, "chat", "-r", "meant") as chat:
        chat.confirm_new_session()
        chat.wait_for("new session meant")
        chat.wait_prompt()
        chat.ask("hello", "hello")
