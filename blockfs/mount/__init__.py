"""The mount process: takes the volume and the mountpoint, serves both protocols, ends cleanly."""
