"""The tree: names, inodes, leaves and the change journal of one volume, in LMDB."""
