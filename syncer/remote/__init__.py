"""Remotes: one interface (`ports.remote.Remote`), spoken to Pithos servers over HTTP, or held in memory."""
