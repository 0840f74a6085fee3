"""Offer the tools of MCP servers."""
