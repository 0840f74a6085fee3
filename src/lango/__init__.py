"""Lango: a durable agent runtime on Google ADK."""

__version__ = "0.1.0"
