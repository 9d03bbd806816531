"""Where a block comes from: the board of a cycle's wants, and the sources on this machine."""
