"""OpenStack Swift as an object store: by its own protocol, not by way of S3."""

from syncer.remote.stores.swift.signin import Access, Keystone, SignIn, TempAuth
from syncer.remote.stores.swift.store import SwiftStore

__all__ = ["Access", "Keystone", "SignIn", "SwiftStore", "TempAuth"]
