"""Real MCP servers in child processes, through ADK's toolset."""

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools.mcp_tool import McpToolset
from google.genai import types

from lango import Settings, open_runtime
from lango.adk import AdkTool, ProviderLlm
from lango.adk.agents.tools.mcp.toolset import mcp_toolsets
from lango.config import McpSettings, StoreSettings, ToolSettings
from lango.errors import ConfigError
from lango.messages import ToolCall
from lango.testing import ScriptedProvider
from lango.tools import Tool

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


async def let_it(tool: Tool, arguments: Mapping[str, Any], call_id: str, context: Any) -> None:
    """Approve everything."""


def approved(tool: Tool) -> AdkTool:
    return AdkTool(tool, gate=let_it)


async def ask(toolset: McpToolset, *calls: ToolCall) -> dict[str, Any]:
    """Let a scripted model call tools in ADK's Runner; return the results."""
    provider = ScriptedProvider([list(calls), "done"])
    agent = LlmAgent(name="root", model=ProviderLlm(provider, "m"), tools=[toolset])
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
    server = McpSettings(
        command=sys.executable, args=[str(script)], env={"GIVEN": "1"}, tools=["add", "variables", "fails"]
    )
    [toolset] = mcp_toolsets({"test": server}, wrap=approved)
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
    [toolset] = mcp_toolsets({"test": McpSettings(command=sys.executable, args=[str(script)], tools=["add"])})
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
    settings = {"test": McpSettings(command=sys.executable, args=[str(script)])}
    opened += mcp_toolsets(settings)
    with caplog.at_level(logging.WARNING, "lango.runtime"):
        tools = await opened[0].get_tools()
    assert {tool.name for tool in tools} == {"add", "variables", "fails"}
    logged = " ".join(record.getMessage() for record in caplog.records if record.name == "lango.runtime")
    assert "tool branches: its schema cannot be used: it has more than 5000 values" in logged
    assert "tool patterned: the schema of its results has a pattern" in logged


async def test_an_http_server(script: Path, opened: list[McpToolset]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as place:  # the port is reserved, and early connections wait
        port, fd = place.getsockname()[1], place.fileno()
        process = await asyncio.create_subprocess_exec(sys.executable, str(script), str(fd), pass_fds=[fd])
    try:
        [toolset] = mcp_toolsets({"far": McpSettings(url=f"http://127.0.0.1:{port}/mcp", tools=["add"])}, wrap=approved)
        opened.append(toolset)
        assert "5" in str((await ask(toolset, ToolCall("c1", "add", {"a": 2, "b": 3})))["c1"])
    finally:
        process.terminate()
        await process.wait()


async def test_a_server_that_does_not_start_is_named(opened: list[McpToolset]) -> None:
    [toolset] = mcp_toolsets({"gone": McpSettings(command="/nowhere/at/all")}, timeout_s=5)
    opened.append(toolset)
    with pytest.raises(ConfigError, match=r"\[mcp\.gone\]"):
        await toolset.get_tools()


async def test_a_turn_without_its_mcp_server_names_it_and_the_next_turn_works(
    tmp_path: Path, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """ADK alone would silently answer without the tools."""
    script = tmp_path / "server.py"
    settings = Settings(
        store=StoreSettings(url=sqlite_url), mcp={"late": McpSettings(command=sys.executable, args=[str(script)])}
    )
    provider = ScriptedProvider(["with tools"])
    async with open_runtime(settings, provider=provider) as runtime:
        with caplog.at_level(logging.CRITICAL), pytest.raises(ConfigError, match=r"\[mcp\.late\]"):
            await runtime.run("s", "hi")
        assert provider.requests == []
        script.write_text(SERVER)
        assert await runtime.run("s", "hi") == "with tools"
    assert "add" in [spec.name for spec in provider.requests[0].tools]


async def test_the_names_of_tools_are_known_before_a_turn(sqlite_url: str, script: Path) -> None:
    server = McpSettings(command=sys.executable, args=[str(script)])
    settings = Settings(
        store=StoreSettings(url=sqlite_url),
        mcp={"sums": server},
        tools=ToolSettings(enabled=["current_time"], approval="auto"),
    )
    provider = ScriptedProvider([ToolCall("c1", "add", {"a": 2, "b": 3}), "5"])
    async with open_runtime(settings, provider=provider) as runtime:
        own = await runtime.app.tool_names()
        assert not own.complete, "nothing was started"
        assert "add" not in own.names
        known = await runtime.app.tool_names(ask_toolsets=True)
        assert known.complete
        assert known.names == own.names | {"add", "variables", "fails"}
        assert await runtime.run("s", "2 + 3?") == "5"
    script.write_text("raise SystemExit(1)")
    async with open_runtime(settings, provider=provider) as runtime:
        with pytest.raises(ConfigError, match=r"\[mcp\.sums\]"):
            await runtime.app.tool_names(ask_toolsets=True)


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
            **{name: McpSettings(command=sys.executable, args=[str(file)]) for name, file in servers.items()},
            "gone": McpSettings(command="/nowhere/at/all"),
        },
        tools=ToolSettings(enabled=["list_files"], approval="auto"),
    )
    provider = ScriptedProvider([ToolCall("c1", "add", {"a": 1, "b": 2}), "3"])
    async with open_runtime(settings, provider=provider) as runtime:
        with caplog.at_level(logging.WARNING, "lango.runtime"):
            found = await runtime.app.tool_names(ask_toolsets=True, require_all=False)
        assert {"add", "variables", "fails", "list_files"} <= found.names
        gone, *reasons = found.unusable
        assert "the MCP server gone does not answer" in gone
        first = "the MCP server first has a tool of this name; leave it out with `tools`"
        assert reasons == [
            f"MCP server second, tool add: {first}",
            f"MCP server second, tool fails: {first}",
            "MCP server second, tool list_files: the agent has a tool of this name; leave it out with `tools`",
            "MCP server second, tool no good name: 'no good name' is not a name for a tool: use letters, digits, _ "
            "and -",
            "MCP server second, tool transfer_to_agent: ADK reserves this name",
            f"MCP server second, tool variables: {first}",
        ]
        logged = [record.getMessage() for record in caplog.records if record.name == "lango.runtime"]
        assert all(any(reason in line for line in logged) for reason in reasons)
