"""`python -m benchmarks targets`: a writeback mount beside the host and two passthroughs; each row has its target."""
