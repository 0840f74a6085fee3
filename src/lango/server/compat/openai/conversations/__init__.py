"""Serve OpenAI's conversations: a conversation is a session."""
