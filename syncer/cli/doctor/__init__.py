"""`blocksync doctor`: what it looks at, and what it concludes."""
