"""Commands and the LAN: through the daemon's session, else with one of their own."""
