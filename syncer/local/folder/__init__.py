"""An ordinary directory as one side of a sync."""
