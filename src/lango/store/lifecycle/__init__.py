"""Fork, rewind, delete and check whole sessions."""
