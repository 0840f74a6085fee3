"""Serve ADK's REST API and its dev UI."""
