"""What the objects of a repository are, byte by byte. Pure: bytes, randomness and time come as arguments."""
