"""Benchmarks: each prints tables of Lango, its peers and the raw limit, measured in the same run."""
