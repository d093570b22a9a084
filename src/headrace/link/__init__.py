"""The link between brokers of one cluster: calls and answers over one connection per pair and direction."""
