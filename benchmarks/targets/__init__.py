"""`python -m benchmarks targets [native]`: a mount beside the host and passthroughs; each row has its target."""
