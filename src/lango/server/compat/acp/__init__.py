"""Serve an agent to editors, by the Agent Client Protocol."""
