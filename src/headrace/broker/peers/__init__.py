"""What brokers of one cluster ask each other for, and what they answer."""
