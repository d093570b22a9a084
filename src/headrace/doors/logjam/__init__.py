"""The Logjam door: ZeroMQ sockets for agents (ROUTER 9604, PULL 9605) and for subscribers (PUB 9606 and 9607)."""
