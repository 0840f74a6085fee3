"""Run turns with ADK's Runner."""
