"""A stand-in: the part of TransferQueue 0.1.11 that the adapter uses."""
