"""Build the agent tree from the settings or from a user's own agent."""
