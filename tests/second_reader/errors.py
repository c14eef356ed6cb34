"""What can be wrong with bytes; a torn end and damage are answers (see `segment`), not errors."""


class FormatError(Exception):
    """The store cannot be read."""


class Malformed(FormatError, ValueError):
    """Checksums hold, but the bytes break a rule of the format: a bug of the writer, of this reader, or of the page."""


class HashMismatch(Malformed):
    """A reference leads to something else than what its hash names."""


class NewerFormat(FormatError, ValueError):
    """Written by a later version of keepstep."""

    def __init__(self, where: str, found: str) -> None:
        super().__init__(f"{where} needs a newer reader: found {found}, this reader knows version 1")
