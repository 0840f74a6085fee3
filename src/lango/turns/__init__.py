"""Keep the state of a running turn in memory: its input, readers, lease and owner."""
