"""What our own server says beyond Pithos, each under a name that it announces. Pure."""
