"""The command line `lango`."""
