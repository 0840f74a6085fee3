"""Run operations on a SQLite file: one writer, and any number of readers."""
