"""What keeps a repository in order, apart from devices that read and write it."""
