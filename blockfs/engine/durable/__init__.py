"""From written pages to durable blocks and a committed tree; and back after a crash."""
