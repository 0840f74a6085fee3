"""Serve Anthropic's messages."""
