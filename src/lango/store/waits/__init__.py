"""What turns wait for."""
