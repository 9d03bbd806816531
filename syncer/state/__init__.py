"""What is remembered about a linked root between runs."""
