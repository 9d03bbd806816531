"""blockfs: files as block lists over one content-addressed block directory, and a FUSE filesystem on top."""
