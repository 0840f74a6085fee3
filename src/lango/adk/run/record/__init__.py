"""The record of a run: what tools and nodes did, and its replay."""
