"""Contents of files on their way into a repository and out of it."""
