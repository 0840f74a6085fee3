"""Agents that ADK's own server and ours load from the same folder."""
