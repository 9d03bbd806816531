"""From a linked root to what works on it: for a cycle, for the daemon, for who only looks."""
