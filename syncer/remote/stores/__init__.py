"""Where repositories lie: object stores behind one small interface. They know nothing of what is in an object."""
