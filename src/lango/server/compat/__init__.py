"""Serve the same agent to clients of other protocols."""
