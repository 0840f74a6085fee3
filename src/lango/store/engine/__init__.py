"""Run operations on SQLite or PostgreSQL."""
