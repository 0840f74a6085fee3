"""Export and import sessions."""
