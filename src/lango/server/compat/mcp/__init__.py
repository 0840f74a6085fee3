"""Serve the agents as tools of an MCP server."""
