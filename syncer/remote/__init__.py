"""Remotes: one interface (`ports.remote.CloudClient`), spoken to Pithos servers over HTTP, or held in memory."""
