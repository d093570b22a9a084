"""Object storage: one port, few backends. Knows keys and bytes, nothing of records or partitions."""
