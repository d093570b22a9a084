"""What brokers of one cluster say to each other on the link, as frames."""
