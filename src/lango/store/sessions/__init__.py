"""Store and read conversations."""
