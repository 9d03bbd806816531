"""The page that `blocksync watch` serves to its user: view models, templates, thin routes, one module of security."""
