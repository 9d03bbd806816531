"""Benchmarks of repositories: `python -m benchmarks repository [PART…]`."""
