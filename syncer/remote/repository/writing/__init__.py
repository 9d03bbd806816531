"""What is written between two commits: orders, the contents that they send, and the draft that they change."""
