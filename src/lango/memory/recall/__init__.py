"""Recall what a request does not show: read the question, rank messages and notes, fill the room."""
