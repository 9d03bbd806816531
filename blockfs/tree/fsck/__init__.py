"""fsck of the tree: what one committed state breaks, what a repair makes of it, and what is lost."""
