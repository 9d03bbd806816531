"""Contents of regular files: pages that were written, blocks that lie below, handles of both."""
