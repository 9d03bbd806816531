"""One cycle of a sync: observe both sides, plan, apply, record."""
