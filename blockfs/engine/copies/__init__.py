"""Clones, snapshots and whole subtrees: what shares blocks instead of copying them."""
