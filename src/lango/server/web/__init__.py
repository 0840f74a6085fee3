"""Serve the web page and its static files."""
