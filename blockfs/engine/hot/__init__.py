"""Hot files: files of the host that the kernel reads and writes itself, assembled from segments and sealed again."""
