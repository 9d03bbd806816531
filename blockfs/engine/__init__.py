"""Filesystem semantics without FUSE and without trio: plain synchronous calls that front-ends translate to."""
