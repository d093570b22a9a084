"""QUIC as the QUIC door and the QUIC client share it: a UDP socket, connections driven by qh3, and streams that look like asyncio transports."""
