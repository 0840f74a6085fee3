"""Answer ADK model calls with Lango's providers."""
