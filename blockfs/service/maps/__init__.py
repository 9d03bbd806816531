"""Maps of files, and which files share most, for `stats --map` and the page."""
