"""`blocksync serve`: a Pithos-compatible object server on a block directory and an LMDB catalogue.

From the bottom up: `catalogue` (the database, and what a transaction does), `store` (what a request asks for), `http`
and `calls` (requests), `app` and `process` (the running server).
"""
