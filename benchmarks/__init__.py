"""Benchmarks: each prints tables with us, the peers and the raw limit, all from the same run."""
