"""Serve AG-UI."""
