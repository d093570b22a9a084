"""Builds and runs everything; the only place that wires parts together."""

from headrace.node.process import run as run
from headrace.node.process import run_broker as run_broker
from headrace.node.process import run_controller as run_controller
