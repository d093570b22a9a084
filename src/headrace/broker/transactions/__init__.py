"""Transactions: records in many partitions, and offsets of a group, that become true together or not at all."""
