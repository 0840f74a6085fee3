"""Commands about what is stored: sessions, memory, artifacts, credentials, the inbox."""
