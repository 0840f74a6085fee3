"""A real MCP server with pictures, sounds, resources, questions and progress: over stdio, or HTTP on a given socket.

It is run as a script, so that it needs nothing of this project.
"""

import base64
import sys
from typing import Any, Literal

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from pydantic import BaseModel, Field

PICTURE_BYTES = 300_000
server = MCPServer("media")


def pixels(size: int, seed: int = 7) -> bytes:
    """Bytes that no compression makes fewer, behind the header of a PNG."""
    state, made = seed, bytearray(b"\x89PNG\r\n\x1a\n")
    while len(made) < size:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        made += state.to_bytes(8, "big")
    return bytes(made[:size])


def image(size: int = PICTURE_BYTES, seed: int = 7) -> ImageContent:
    return ImageContent(type="image", data=base64.b64encode(pixels(size, seed)).decode(), mime_type="image/png")


@server.tool(structured_output=False)
def picture() -> Any:
    """Draw a picture."""
    return [TextContent(type="text", text="here it is"), image()]


@server.tool(structured_output=False)
def sound() -> Any:
    """Record a sound."""
    return [AudioContent(type="audio", data=base64.b64encode(b"RIFF" + bytes(4_000)).decode(), mime_type="audio/wav")]


@server.tool(structured_output=False)
def resources() -> Any:
    """Return a text, a file and a link."""
    blob = base64.b64encode(b"%PDF-1.7 " + bytes(2_000)).decode()
    return [
        EmbeddedResource(
            type="resource", resource=TextResourceContents(uri="note://today", mime_type="text/plain", text="buy milk")
        ),
        EmbeddedResource(
            type="resource",
            resource=BlobResourceContents(uri="file:///home/report%201.pdf", mime_type="application/pdf", blob=blob),
        ),
        ResourceLink(type="resource_link", uri="https://example.org/a", name="a page", mime_type="text/html"),
    ]


@server.tool(structured_output=False)
def structured() -> CallToolResult:
    """Return a picture in the content and again in the structured content."""
    drawn = image(4_000)
    return CallToolResult(
        content=[drawn],
        structured_content={"title": "map", "picture": drawn.model_dump(by_alias=True), "raw": drawn.data},
    )


@server.tool(structured_output=False)
def failed() -> CallToolResult:
    """Fail, with a picture of the failure."""
    return CallToolResult(content=[TextContent(type="text", text="no paper left"), image(2_000)], is_error=True)


@server.tool(structured_output=False)
def huge() -> Any:
    """Return a picture that is too large, and one whose data is damaged."""
    return [image(50_000), ImageContent(type="image", data="no base64!", mime_type="image/png")]


class Order(BaseModel):
    """What the user fills in."""

    size: int
    colour: str


@server.tool(structured_output=False)
async def order(ctx: Context) -> str:
    """Ask the user for an order."""
    answer = await ctx.elicit("What may it be?", Order)
    return f"{answer.action}: {getattr(answer, 'data', None)}"


class Paint(BaseModel):
    """A form with a choice, a default and an optional field."""

    colour: Literal["red", "blue"] = Field(description="of the wall")
    layers: int = Field(default=2, ge=1)
    glossy: bool = False
    email: str | None = None


@server.tool(structured_output=False)
async def paint(ctx: Context) -> str:
    """Report half of the work, and ask the user before the other half."""
    await ctx.report_progress(1, 2, "mixing")
    answer = await ctx.elicit("Which paint?", Paint)
    return f"{answer.action}: {getattr(answer, 'data', None)}"


@server.tool(structured_output=False)
async def sign_in(ctx: Context) -> str:
    """Send the user to an address."""
    answer = await ctx.elicit_url("Please sign in.", "https://example.org/sign-in?id=1", "e-1")
    return answer.action


@server.tool(structured_output=False)
async def count(ctx: Context) -> str:
    """Count, and report each step."""
    for number in range(1, 4):
        await ctx.report_progress(number, 3, f"step {number}")
    return "counted"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        import uvicorn

        uvicorn.run(server.streamable_http_app(), fd=int(sys.argv[1]), log_level="error")
    else:
        server.run()
