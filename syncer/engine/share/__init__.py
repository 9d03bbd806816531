"""What a root gives to the other devices of its share: blocks, and the key that proves who belongs to it."""
