"""One container of a Pithos server: what is sent to it, what the answers mean, and the session that does both."""
