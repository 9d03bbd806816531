"""The process floor: exit codes, atomic files, logs, output, units. A closed list, not a place for leftovers."""
