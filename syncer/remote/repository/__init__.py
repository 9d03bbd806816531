"""The repository: a share kept on a plain object store, sealed by its devices. docs/design/repository.md."""
