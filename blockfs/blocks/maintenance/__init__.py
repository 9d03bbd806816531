"""What keeps a block directory sound and small: collecting, repacking, scrubbing, repairing."""
