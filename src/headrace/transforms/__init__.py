"""Wasm modules that change records at the leader, before the WAL: their host, their limits, and where they are kept."""
