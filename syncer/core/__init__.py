"""The pure planner: observations in, an ordered plan out. Reads nothing, writes nothing, knows no clock."""
