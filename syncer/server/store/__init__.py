"""What requests ask for, on a catalogue and a block directory. Thread-safe, synchronous."""
