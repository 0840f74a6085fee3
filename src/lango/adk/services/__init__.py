"""Run ADK's services on the Lango store."""
