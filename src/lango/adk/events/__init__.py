"""ADK's events to rows and back, and the recorded run of a turn."""
