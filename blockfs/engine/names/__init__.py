"""Names and inodes: what a POSIX filesystem does with directories, links and attributes."""
