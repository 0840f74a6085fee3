"""What providers built on a vendor's SDK share."""
