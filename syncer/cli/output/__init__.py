"""What commands print, once or live."""
