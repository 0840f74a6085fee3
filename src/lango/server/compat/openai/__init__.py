"""Serve OpenAI's chat completions."""
