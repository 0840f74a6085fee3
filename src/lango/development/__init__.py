"""What the developer of an agent sees of it: its parts, the failures of its code, and its test cases."""
