"""Serve OpenAI's responses: a response is a turn of a session."""
