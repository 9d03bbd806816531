"""What may have changed in an ordinary directory, for one stat per entry and no memory."""
