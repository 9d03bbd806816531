"""The kernel's protocol: its requests become calls of the engine. The only importer of pyfuse3."""
