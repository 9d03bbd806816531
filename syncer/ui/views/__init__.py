"""What each page shows: pure functions from facts to values that a template only has to write down."""
