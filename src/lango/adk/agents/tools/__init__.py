"""Offer tools to ADK agents: Lango's own, those of clients and those of MCP servers."""
