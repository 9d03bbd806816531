"""What a mount answers over its control socket: one function for each request, by topic."""
