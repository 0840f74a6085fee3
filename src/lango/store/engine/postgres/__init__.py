"""Run operations on PostgreSQL: each transaction exactly once, notifications, upgrades under load."""
