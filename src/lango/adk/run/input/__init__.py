"""Prepare the input of a turn: from a message, an answer, results of tools, or a history that the client sends."""
