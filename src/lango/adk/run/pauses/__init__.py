"""What pauses a turn: approvals, human input and credentials."""
