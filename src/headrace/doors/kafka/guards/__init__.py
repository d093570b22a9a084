"""Who may ask for what, request by request: the rules of Kafka's brokers, in the order in which they look at them."""
