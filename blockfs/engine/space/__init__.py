"""How much of the host a volume may use."""
