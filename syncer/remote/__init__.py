"""Remotes: one interface (`client.CloudClient`), spoken to Pithos servers over HTTP, or held in memory."""
