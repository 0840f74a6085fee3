"""The runtime over HTTP: streams that survive a lost connection, closed to everyone who does not belong."""

from lango.server.app import create_app

__all__ = ["create_app"]
