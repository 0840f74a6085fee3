"""Hold what a turn under way needs in memory: input, readers, lease, liveness."""
