"""HTTP that is safe against whoever connects, and the application behind it."""
