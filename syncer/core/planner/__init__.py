"""The planner: two observations and the base in, an ordered plan out; and what a run of it has really done. Pure."""
