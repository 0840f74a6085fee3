"""Search conversations."""
