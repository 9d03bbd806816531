"""`blocksync repo`: repositories on object stores, made and looked after."""
