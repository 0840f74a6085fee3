"""Commands that set Lango up: configuration, checks, the database, API keys, local models."""
