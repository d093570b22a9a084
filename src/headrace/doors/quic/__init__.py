"""The QUIC door: Kafka's frames on streams, and HTTP/3, on one UDP port."""
