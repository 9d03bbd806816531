"""Cycles that look at a part of the tree."""
