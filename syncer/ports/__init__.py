"""The interfaces that the engine is written against, with their values. No code that does anything."""
