"""What a user may do with what a sync has kept: trash and conflict copies."""
