"""HTTP as the remote clients need it: many requests at once, within limits, tried again."""
