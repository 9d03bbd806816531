"""`blocksync serve`: a Pithos-compatible object server on a block directory and an LMDB catalogue.

From the bottom up: `schema` and `conditions` (pure), `nameindex`, `catalogue` and `commits` (the database), `contents`
(block lists and possession), `containers`, `objects` and `sweep` (what a transaction does), `store` (what a request
asks for), `target`, `bodies` and `app` (HTTP), `process` (the running server).
"""
