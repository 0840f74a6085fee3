"""Read from and write to the terminal."""
