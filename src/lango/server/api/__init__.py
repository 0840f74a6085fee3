"""Serve Lango's own routes under /v1, and health and metrics."""
