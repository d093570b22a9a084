"""Builds and runs everything; the only place that wires parts together."""

from headrace.node.process import run as run
