"""Artifacts: named files with versions, of a session or of a user."""
