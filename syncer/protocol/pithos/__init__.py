"""What Pithos itself says on the wire. Pure."""
