"""The record batch: unit of wire, disk and lake. Sans-IO: bytes and values, nothing else."""
