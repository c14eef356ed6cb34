"""The backend in memory; only what it raises."""


class StorageKeyNotFoundError(KeyError):
    """A key was cleared before it was read."""
