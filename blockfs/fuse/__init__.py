"""FUSE front-ends and the mount process. The only importer of pyfuse3."""
