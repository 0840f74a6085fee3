"""The questions of a real MCP server in the terminal: `lango chat` asks them in place, while the tool waits."""

import json
import sys
from pathlib import Path

from lango.messages import ToolCall
from tests.support.processes import run_lango
from tests.support.servers import mcp_tools
from tests.support.servers.scripted_server import scripted_server
from tests.support.terminal import CTRL_C, Terminal, terminal

CONFIG = f"""
[agent]
instruction = "Help."
[tools]
enabled = []
approval = "auto"
[mcp.media]
command = {json.dumps(sys.executable)}
args = [{json.dumps(mcp_tools.__file__)}]
"""


def since(chat: Terminal, message: str) -> str:
    """Return what stands after a message; empty until it is shown."""
    return chat.text.partition(f"> {message}\n")[2]


def test_questions_are_asked_in_place(tmp_path: Path) -> None:
    (tmp_path / "lango.toml").write_text(CONFIG)
    script: list[str | ToolCall] = [ToolCall("c1", "order", {}), "ordered", ToolCall("c2", "sign_in", {}), "signed in"]
    script += [ToolCall("c3", "order", {}), "answered elsewhere"]
    script += [ToolCall("c4", "order", {})]
    with (
        scripted_server(*script) as model,
        terminal(tmp_path, "chat", "-r", "s", columns=100, rows=30, stdout=None, **model.environment) as chat,
    ):
        chat.confirm_new_session()
        chat.wait_prompt()
        chat.send("one")
        chat.wait_for("Size (a whole number):")
        assert "What may it be?" in chat.text
        chat.send("large")
        chat.wait_for('is not of type "integer"')
        chat.wait_for(lambda: chat.text.count("Size (a whole number):") == 2, "the field is asked for again")
        chat.send("3")
        chat.wait_for("Colour:")
        chat.send("blue")
        chat.wait_for("ordered")
        chat.wait_prompt()
        [result] = [sent for sent in model.requests[1]["messages"] if sent["role"] == "tool"]
        assert "accept: size=3 colour='blue'" in result["content"]

        chat.send("two")
        chat.wait_for("press Enter when you are done:")
        assert "asked by the MCP server media" in chat.text
        assert "https://example.org/sign-in?id=1" in chat.text
        chat.send("/skip")
        chat.wait_for("signed in")
        chat.wait_prompt()
        assert "decline" in model.requests[3]["messages"][-1]["content"]

        chat.send("three")
        chat.wait_for(lambda: "Size (" in since(chat, "three"), "the question")
        waiting = json.loads(run_lango("inbox", "--json", cwd=tmp_path, env=model.environment).stdout)
        run_lango("inbox", "answer", waiting["id"], "decline", cwd=tmp_path, env=model.environment)
        chat.wait_for("the question is closed")
        chat.wait_for("answered elsewhere")
        chat.wait_prompt()

        chat.send("four")
        chat.wait_for(lambda: "Size (" in since(chat, "four"), "the question")
        chat.type(CTRL_C)
        chat.wait_for("stopped; the answer so far is kept")
        chat.wait_prompt()
