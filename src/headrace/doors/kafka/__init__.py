"""The Kafka door: Kafka's wire protocol over the one log engine."""
