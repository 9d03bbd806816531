"""The bytes of the LAN protocol: frames, connections, messages, keys. Pure."""
