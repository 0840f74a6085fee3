"""Real MCP servers in child processes, through ADK's toolset."""

import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools import BaseTool, ToolContext
from google.adk.tools.mcp_tool import McpToolset
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types

from lango import Settings, open_runtime
from lango.adk import AdkTool, ProviderLlm
from lango.adk.agents.tools.mcp.toolset import mcp_toolsets
from lango.config import McpSettings, StoreSettings, ToolSettings
from lango.errors import ConfigError
from lango.messages import ToolCall
from lango.testing import ScriptedProvider
from tests.support.forked_commands import forked_command, forked_http_server

SERVER = '''
import os, sys
try:
    from mcp.server.mcpserver import MCPServer
except ImportError:  # 1.x
    from mcp.server.fastmcp import FastMCP as MCPServer

server = MCPServer("test")

@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

@server.tool()
def variables() -> list[str]:
    """Return the names of the environment variables."""
    return sorted(os.environ)

@server.tool()
def fails() -> str:
    """Fail."""
    raise ValueError("the server's own trouble")

if len(sys.argv) > 1:
    import uvicorn
    uvicorn.run(server.streamable_http_app(), fd=int(sys.argv[1]), log_level="error")
else:
    server.run()
'''


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    return path


@pytest.fixture
async def opened() -> AsyncIterator[list[McpToolset]]:
    toolsets: list[McpToolset] = []
    yield toolsets
    for toolset in toolsets:
        await toolset.close()


def approve(tool: BaseTool, args: dict[str, Any], tool_context: ToolContext) -> None:
    """Approve everything."""
    tool_context.tool_confirmation = ToolConfirmation(confirmed=True)


async def ask(toolset: McpToolset, *calls: ToolCall) -> dict[str, Any]:
    """Let a scripted model call tools in ADK's Runner; return the results."""
    provider = ScriptedProvider([list(calls), "done"])
    agent = LlmAgent(name="root", model=ProviderLlm(provider, "m"), tools=[toolset], before_tool_callback=approve)
    service = InMemorySessionService()
    session = await service.create_session(app_name="app", user_id="u")
    runner = Runner(app_name="app", agent=agent, session_service=service)
    message = types.Content(role="user", parts=[types.Part(text="go")])
    run = runner.run_async(user_id="u", session_id=session.id, new_message=message, run_config=RunConfig())
    async for _ in run:
        pass
    return {call.id: call.output for call in provider.requests[-1].messages[-1].tool_calls}


async def test_a_stdio_server_its_filter_and_its_environment(
    script: Path, opened: list[McpToolset], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "canary")
    server = McpSettings(**forked_command(str(script)), env={"GIVEN": "1"}, tools=["add", "variables", "fails"])
    [toolset] = mcp_toolsets({"test": server})
    opened.append(toolset)
    results = await ask(
        toolset,
        ToolCall("c1", "add", {"a": 2, "b": 3}),
        ToolCall("c2", "variables", {}),
        ToolCall("c3", "add", {"a": "two"}),
        ToolCall("c4", "fails", {}),
    )
    assert "5" in str(results["c1"])
    assert "GIVEN" in str(results["c2"])
    assert "GOOGLE_API_KEY" not in str(results["c2"])
    assert "not run" in results["c3"]["error"]
    assert "Error executing tool fails" in results["c4"]["error"]


async def test_only_the_named_tools_are_used_and_need_approval(script: Path, opened: list[McpToolset]) -> None:
    [toolset] = mcp_toolsets({"test": McpSettings(**forked_command(str(script)), tools=["add"])})
    opened.append(toolset)
    [tool] = await toolset.get_tools()
    assert isinstance(tool, AdkTool)
    assert (tool.name, tool.tool.level, tool.tool.effect) == ("add", "dangerous", "once")
    assert tool.tool.schema["properties"].keys() == {"a", "b"}
    assert await toolset.get_tools() == [tool]


HOSTILE = """
from typing import Annotated, Literal
from pydantic import BaseModel, Field

class Checked(BaseModel):
    text: Annotated[str, Field(pattern="^(a+)+$")]

@server.tool()
def branches(a: Literal[tuple(range(6000))]) -> int:
    \"\"\"Take one of many.\"\"\"
    return a

@server.tool()
def patterned() -> Checked:
    \"\"\"Return what takes long to check.\"\"\"
    return Checked(text="a")

"""


async def test_attack_16_a_tool_with_a_schema_above_a_limit_is_dropped_without_the_others(
    tmp_path: Path, opened: list[McpToolset], caplog: pytest.LogCaptureFixture
) -> None:
    script = tmp_path / "hostile.py"
    script.write_text(SERVER.replace("if len(sys.argv)", HOSTILE + "if len(sys.argv)"))
    settings = {"test": McpSettings(**forked_command(str(script)))}
    opened += mcp_toolsets(settings)
    with caplog.at_level(logging.WARNING, "lango.runtime"):
        tools = await opened[0].get_tools()
    assert {tool.name for tool in tools} == {"add", "variables", "fails"}
    logged = " ".join(record.getMessage() for record in caplog.records if record.name == "lango.runtime")
    assert "tool branches: its schema cannot be used: it has more than 5000 values" in logged
    assert "tool patterned: the schema of its results has a pattern" in logged


async def test_an_http_server(script: Path, opened: list[McpToolset]) -> None:
    with forked_http_server(script) as url:
        [toolset] = mcp_toolsets({"far": McpSettings(url=url, tools=["add"])})
        opened.append(toolset)
        assert "5" in str((await ask(toolset, ToolCall("c1", "add", {"a": 2, "b": 3})))["c1"])
        await toolset.close()


async def test_a_server_that_does_not_start_is_named(opened: list[McpToolset]) -> None:
    [toolset] = mcp_toolsets({"gone": McpSettings(command="/nowhere/at/all")}, timeout_s=5)
    opened.append(toolset)
    with pytest.raises(ConfigError, match=r"\[mcp\.gone\]"):
        await toolset.get_tools()


async def test_a_turn_runs_without_a_server_that_is_down_until_it_is_up(
    tmp_path: Path, script: Path, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """ADK alone would answer without the tools, and without a word."""
    late, asked = tmp_path / "late.py", tmp_path / "asked"
    # it notes each attempt to start it
    starting = f"open({str(asked)!r}, 'a').write('x'); exec(open({str(late)!r}).read())"
    servers = {
        "late": McpSettings(**forked_command("-c", starting)),
        "up": McpSettings(**forked_command(str(script)), tools=["add"]),
    }
    settings = Settings.model_validate(
        {"store": {"url": sqlite_url}, "mcp": servers, "tools": {"approval": "auto", "enabled": []}}
    )
    script_of_model = [ToolCall("c1", "add", {"a": 1, "b": 2}), "without late", "with late"]
    provider = ScriptedProvider(script_of_model)
    async with open_runtime(settings, provider=provider) as runtime:
        assert await runtime.run("s", "hi") == "without late"
        first = provider.requests[:2]
        attempts = asked.read_text()
        assert [{spec.name for spec in request.tools} & {"add", "subtract"} for request in first] == [{"add"}] * 2
        assert all("MCP servers are currently unavailable: late" in request.system for request in first)
        [warning] = [one.getMessage() for one in caplog.records if one.name == "lango.runtime"]
        assert "[mcp.late]" in warning
        late.write_text(SERVER.replace("def add", "def subtract").replace("a + b", "a - b"))
        assert await runtime.run("s", "again") == "with late"
        assert len(asked.read_text()) > len(attempts)
    assert {"add", "subtract"} <= {spec.name for spec in provider.requests[2].tools}
    assert "unavailable" not in provider.requests[2].system


CHANGING = """
from mcp.server.mcpserver import Context

@server.tool()
async def learn(ctx: Context) -> str:
    '''Add a tool.'''
    def learned() -> str:
        '''Show what was learned.'''
        return "it"
    server.add_tool(learned)
    await ctx.session.send_tool_list_changed()
    return "ok"
"""


@pytest.mark.parametrize("over_http", [False, True])
async def test_a_change_of_the_tools_is_seen_by_the_next_model_call(
    tmp_path: Path, sqlite_url: str, over_http: bool
) -> None:
    script = tmp_path / "changing.py"
    script.write_text(SERVER.replace("if len(sys.argv) > 1:", CHANGING + "\nif len(sys.argv) > 1:"))
    tools: dict[str, Any] = {"approval": "auto", "enabled": []}
    provider = ScriptedProvider([ToolCall("c1", "learn", {}), ToolCall("c2", "learned", {}), "done"])
    with forked_http_server(script) if over_http else nullcontext() as url:
        one = {"url": url} if url else forked_command(str(script))
        settings = Settings.model_validate({"store": {"url": sqlite_url}, "mcp": {"changing": one}, "tools": tools})
        async with open_runtime(settings, provider=provider) as runtime:
            assert await runtime.run("s", "hi") == "done"
    offered = [{spec.name for spec in request.tools} for request in provider.requests]
    assert "learned" not in offered[0]
    assert "learned" in offered[1]


async def test_the_names_of_tools_are_known_before_a_turn(sqlite_url: str, script: Path) -> None:
    server = McpSettings(**forked_command(str(script)))
    settings = Settings(
        store=StoreSettings(url=sqlite_url),
        mcp={"sums": server},
        tools=ToolSettings(enabled=["current_time"], approval="auto"),
    )
    provider = ScriptedProvider([ToolCall("c1", "add", {"a": 2, "b": 3}), "5"])
    async with open_runtime(settings, provider=provider) as runtime:
        own = await runtime.tool_names()
        assert not own.complete, "nothing was started"
        assert "add" not in own.names
        known = await runtime.tool_names(ask_toolsets=True)
        assert known.complete
        assert known.names == own.names | {"add", "variables", "fails"}
        assert await runtime.run("s", "2 + 3?") == "5"
    script.write_text("raise SystemExit(1)")
    async with open_runtime(settings, provider=provider) as runtime:
        with pytest.raises(ConfigError, match=r"\[mcp\.sums\]"):
            await runtime.tool_names(ask_toolsets=True)


@pytest.mark.parametrize("server", [McpSettings(), McpSettings(command="x", url="http://y")])
def test_a_server_is_a_command_or_an_address(server: McpSettings) -> None:
    with pytest.raises(ConfigError, match="a command or a url"):
        mcp_toolsets({"both": server})


def test_a_missing_package_is_reported_with_its_install_command() -> None:
    program = """
import importlib.util as util
real = util.find_spec
util.find_spec = lambda name, *rest: None if name == "mcp" else real(name, *rest)
from lango.errors import MissingDependency
try:
    import lango.adk.agents.tools.mcp.toolset
except MissingDependency as error:
    print(error)
"""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ),
    )
    assert ran.stdout.strip() == 'MCP servers need another package: pip install "lango-adk[mcp]"', ran.stderr


UNUSABLE = """
@server.tool(name="no good name")
def bad() -> str:
    \"\"\"Have a name that models reject.\"\"\"
    return ""

@server.tool(name="transfer_to_agent")
def reserved() -> str:
    \"\"\"Have a name of ADK.\"\"\"
    return ""

@server.tool()
def list_files() -> str:
    \"\"\"Have the name of a built-in tool.\"\"\"
    return ""

"""


async def test_tools_that_cannot_be_offered_are_listed_with_their_reasons(
    tmp_path: Path, script: Path, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    other = tmp_path / "other.py"
    other.write_text(SERVER.replace("if len(sys.argv)", UNUSABLE + "if len(sys.argv)"))
    servers = {"first": script, "second": other}
    settings = Settings(
        store=StoreSettings(url=sqlite_url),
        mcp={
            **{name: McpSettings(**forked_command(str(file))) for name, file in servers.items()},
            "gone": McpSettings(command="/nowhere/at/all"),
        },
        tools=ToolSettings(enabled=["list_files"], approval="auto"),
    )
    provider = ScriptedProvider([ToolCall("c1", "add", {"a": 1, "b": 2}), "3"])
    async with open_runtime(settings, provider=provider) as runtime:
        with caplog.at_level(logging.WARNING, "lango.runtime"):
            found = await runtime.tool_names(ask_toolsets=True, require_all=False)
        assert {"add", "variables", "fails", "list_files"} <= found.names
        [gone] = found.failures
        assert "the MCP server gone did not answer" in gone
        first = "the MCP server first has a tool of this name; leave it out with `tools`"
        assert list(found.unusable) == [
            f"MCP server second, tool add: {first}",
            f"MCP server second, tool fails: {first}",
            "MCP server second, tool list_files: the agent has a tool of this name; leave it out with `tools`",
            "MCP server second, tool no good name: 'no good name' is not a valid tool name: use letters, digits, _ "
            "and -",
            "MCP server second, tool transfer_to_agent: ADK reserves this name",
            f"MCP server second, tool variables: {first}",
        ]
        logged = [record.getMessage() for record in caplog.records if record.name == "lango.runtime"]
        assert all(any(reason in line for line in logged) for reason in found.unusable)
