"""Verify what other systems send, sign what is sent to them, and turn payloads into messages."""
