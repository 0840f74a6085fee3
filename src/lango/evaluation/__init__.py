"""Evaluate agents: cases in ADK's eval-set format, their runs, checks and reports."""
