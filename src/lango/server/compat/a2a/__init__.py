"""Serve the agents to other agents over A2A."""
