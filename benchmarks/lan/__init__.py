"""python -m benchmarks lan [--quick] [PART…]: each promise about blocks from peers, on networks of its own."""
