"""The wires of LAN peers: Ethernet frames, IPv6 multicast, IPv4 broadcast, on the interfaces that may be used."""
