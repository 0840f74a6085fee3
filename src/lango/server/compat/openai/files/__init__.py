"""Serve OpenAI's files: uploads that messages refer to by their ids."""
