"""Credentials of users: encryption, and the rows that hold them."""
