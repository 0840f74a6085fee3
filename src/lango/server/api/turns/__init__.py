"""Routes that start and follow turns, and answer what they wait for."""
