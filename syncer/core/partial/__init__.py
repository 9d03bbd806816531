"""Which part of the tree a cycle has to think about, so that the rest is neither looked at nor planned. Pure."""
