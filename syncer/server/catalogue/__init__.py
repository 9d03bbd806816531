"""The server's database: what a transaction reads and writes."""
