"""The runtime over HTTP: streams that survive a lost connection, closed to everyone who does not belong."""
