"""Routes about what a session holds: messages, options, state, memory, artifacts, usage, traces."""
