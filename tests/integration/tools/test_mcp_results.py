"""Pictures, sounds and resources in the results of a real MCP server reach the model as files, never as base64."""

import base64
import json
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams
from mcp import StdioServerParameters

from lango import Settings, open_runtime
from lango.adk import ProviderLlm
from lango.events import ToolEnd
from lango.history import count_tokens
from lango.history.tokens import IMAGE_TOKENS
from lango.messages import Media, Message, ToolCall
from lango.testing import ScriptedProvider
from tests.agents.parts import collect
from tests.support.forked_commands import forked_command
from tests.support.servers import mcp_tools
from tests.support.servers.mcp_tools import PICTURE_BYTES, pixels

SERVER = {"media": forked_command(mcp_tools.__file__)}
BASE64 = base64.b64encode(pixels(PICTURE_BYTES)).decode()
EXCERPT = BASE64[1_000:1_040]


def settings_for(url: str, **limits: Any) -> Settings:
    return Settings.model_validate(
        {
            "store": {"url": url},
            "mcp": SERVER,
            "tools": {"approval": "auto", "enabled": []},
            "server": {"limits": limits},
        }
    )


def tool_messages(provider: ScriptedProvider) -> list[Message]:
    return [message for message in provider.requests[-1].messages if message.role == "tool"]


async def test_a_picture_reaches_the_model_as_one_in_later_turns_forks_and_imports_too(
    postgres_url: str, sqlite_url: str
) -> None:
    provider = ScriptedProvider([ToolCall("c1", "picture", {}), "nice", "still there", "in the fork", "imported"])
    picture = Media("image/png", pixels(PICTURE_BYTES))
    async with open_runtime(settings_for(postgres_url), provider=provider) as runtime:
        turn = await runtime.submit("s", "draw")
        events = await collect(turn.follow())
        [result] = tool_messages(provider)
        assert result.media == (picture,)
        shown = {"file": "picture.png", "mime_type": "image/png", "bytes": PICTURE_BYTES}
        assert result.tool_calls[0].output == {
            "content": [{"type": "text", "text": "here it is"}, shown],
            "isError": False,
        }
        assert [event.result["content"][1] for event in events if isinstance(event, ToolEnd)] == [shown]
        assert EXCERPT not in str(events)

        [artifact] = await runtime.artifacts.list("s")
        assert (artifact.name, artifact.size, artifact.mime_type) == ("picture.png", PICTURE_BYTES, "image/png")
        usage = await runtime.sessions.usage("s")
        assert IMAGE_TOKENS < usage.window.tokens < 2 * IMAGE_TOKENS, "a picture costs what a picture costs"
        assert count_tokens(result) < IMAGE_TOKENS + 100
        exported = [line async for line in runtime.sessions.export_lines("s")]
        await runtime.sessions.fork("s", new_id="f")

    async with open_runtime(settings_for(postgres_url), provider=provider) as runtime:  # nothing is left in memory
        for session in ("s", "f"):
            await runtime.run(session, "is it still there?")
            assert tool_messages(provider)[0].media == (picture,), session
        assert await runtime.sessions.check("s") == []
        [stored] = [row for row in await runtime.sessions.messages("s") if row.message and row.message.role == "tool"]
        assert stored.message
        assert EXCERPT not in stored.message.content + str(stored.message.tool_calls) + str(stored.extra)

    async with open_runtime(settings_for(sqlite_url + ".2"), provider=provider) as other:
        await other.sessions.import_lines(exported)
        await other.run("s", "and there?")
        assert tool_messages(provider)[0].media == (picture,)
        assert [one.name for one in await other.artifacts.list("s")] == ["picture.png"]


async def test_other_blocks_become_text_and_files_and_an_error_stays_an_error(sqlite_url: str) -> None:
    names = ("sound", "resources", "structured", "failed", "huge")
    provider = ScriptedProvider([*(ToolCall(name, name, {}) for name in names), "done"])
    async with open_runtime(settings_for(sqlite_url, max_attachment_bytes=20_000), provider=provider) as runtime:
        await runtime.run("s", "go")
        artifacts = {one.name for one in await runtime.artifacts.list("s")}
    results = {message.tool_calls[0].name: message for message in tool_messages(provider)}
    outputs = {name: results[name].tool_calls[0].output or {} for name in names}

    assert [media.mime_type for media in results["sound"].media] == ["audio/wav"]
    assert [media.mime_type for media in results["resources"].media] == ["application/pdf"]
    text, file, link = outputs["resources"]["content"]
    assert text == {"type": "text", "text": "[note://today]\nbuy milk"}
    assert file["file"] == "resources-report 1.pdf"
    assert link["text"] == "[link to a resource: https://example.org/a] a page, text/html"

    assert outputs["structured"]["structuredContent"] == {
        "title": "map",
        "picture": {"file": "structured.png"},
        "raw": "[structured.png]",
    }
    assert len(results["structured"].media) == 1

    assert outputs["failed"] == {"error": "no paper left"}
    assert not results["failed"].media
    too_large, damaged = outputs["huge"]["content"]
    assert "50000 bytes" in too_large["left_out"]
    assert "not base64" in damaged["text"]
    assert not results["huge"].media
    assert artifacts == {"sound.wav", "resources-report 1.pdf", "structured.png"}
    assert base64.b64encode(pixels(50_000)).decode()[1_000:1_040] not in json.dumps(outputs)


async def test_an_agent_of_your_own_with_adks_toolset_gets_the_picture_too(sqlite_url: str) -> None:
    """The toolset is the user's own, and ADK alone passes base64 on."""
    parameters = StdioServerParameters(**forked_command(mcp_tools.__file__))
    toolset = McpToolset(connection_params=StdioConnectionParams(server_params=parameters))
    provider = ScriptedProvider([ToolCall("c1", "picture", {}), "nice"])
    agent = LlmAgent(name="own", model=ProviderLlm(provider=provider, model="m"), tools=[toolset])
    settings = Settings.model_validate({"store": {"url": sqlite_url}})
    async with open_runtime(settings, root_agent=agent) as runtime:
        await runtime.run("s", "draw")
        assert [one.name for one in await runtime.artifacts.list("s")] == ["picture.png"]
    [result] = tool_messages(provider)
    assert result.media == (Media("image/png", pixels(PICTURE_BYTES)),)
    assert EXCERPT not in str(result.tool_calls)
