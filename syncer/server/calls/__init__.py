"""One module for each kind of request: HTTP in, a call of the store, HTTP out. No rules about objects here."""
