"""Authenticate callers and refuse unsafe requests before they are read."""
