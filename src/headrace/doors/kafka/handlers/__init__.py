"""One file per Kafka API; each translates and delegates to `broker`."""
