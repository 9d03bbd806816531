"""Front-end 2: the FUSE kernel protocol itself, on trio. No libfuse, no compiler; docs/design/kernel-frontend.md."""
