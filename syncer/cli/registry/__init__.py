"""Which roots are linked, which clouds there are, and what is set for this machine."""
