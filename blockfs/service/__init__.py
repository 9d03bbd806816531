"""What a volume answers by its socket or offline, without FUSE: changes, snapshots, figures, maintenance."""
