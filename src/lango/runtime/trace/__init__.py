"""What happened in a turn: its agents, model calls and tools, from what is stored."""
