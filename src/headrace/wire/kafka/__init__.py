"""Kafka's wire protocol.

`messages/` is generated from `schema/` and covers every message; `produce`, `fetch` and `metadata` are written
by hand for the requests that make up nearly all traffic. Both read the same bytes, and tests hold them equal.
"""
