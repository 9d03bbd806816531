"""What a sync decides, and the values that all its parts share. Reads nothing, writes nothing, knows no clock."""
