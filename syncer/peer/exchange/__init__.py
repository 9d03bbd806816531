"""Blocks over connections: what is served, what is fetched, and the task that holds session, links and connections."""
