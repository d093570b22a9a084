"""Benchmarks: headrace and its rivals on the same machine, in the same run, under the same load.

A *rival* is a broker that can be started; a *workload* is a list of cases; a *case* measures one started broker
once. Rivals take turns inside every round, so that a noisy minute hurts all of them. The load speaks Kafka with
librdkafka or with frames built here, never with headrace's own codecs: what measures must not share the faults of
what is measured.
"""
