"""The commands of `lango`, one module each."""
