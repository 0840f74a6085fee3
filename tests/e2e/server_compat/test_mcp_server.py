"""MCP against real servers, through the official client: over HTTP and a process, and as versions before 2026-07-28."""
