"""The partition log: hot tail in arenas, durable in the WAL ring, everything older through `RemoteSegments`."""
