"""What a user is told of who looks neither at a terminal nor at the page: which events, and by what."""
