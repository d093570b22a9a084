"""Logjam's producer and consumer protocol: frames, meta information, names and compression, as values."""
