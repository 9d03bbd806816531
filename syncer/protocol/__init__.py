"""Pithos codecs: hashmaps, listings, headers, names, faults. Pure; shared by the client and the server.

The protocol itself, with what Synnefo's server does differently from ours, is described in docs/reference/server.md.
"""
