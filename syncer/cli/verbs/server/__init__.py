"""The verbs of a server."""
