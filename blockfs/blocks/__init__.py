"""The block directory: content-addressed blocks on disk, and the pure arithmetic of block lists.

Public to syncer. Knows no tree, no FUSE and no trio: a host without FUSE can sync.
"""
