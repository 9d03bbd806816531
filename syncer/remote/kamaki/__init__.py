"""What kamaki's users have already: its configuration, and where a cloud keeps its storage."""
