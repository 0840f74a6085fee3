"""Commands that run the agent: chat, one prompt, the server, test cases."""
