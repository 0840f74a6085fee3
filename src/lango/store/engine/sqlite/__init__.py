"""Run operations on a SQLite file: one writer, and readers beside it."""
