"""The load: processes of their own that produce, consume or hold connections, driven over stdin and stdout.

A load process prepares and warms up, prints `ready`, waits for a line, does the measured work and prints one outcome
as JSON. Brokers and load share a machine, never a process.
"""
