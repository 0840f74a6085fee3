"""Test cases in ADK's eval-set format: read, written, and made from sessions."""
