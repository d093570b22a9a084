"""The consumer group protocol of KIP-848: one heartbeat, and the coordinator assigns."""
