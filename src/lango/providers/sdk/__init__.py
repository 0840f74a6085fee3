"""Code that providers built on a vendor's SDK share."""
