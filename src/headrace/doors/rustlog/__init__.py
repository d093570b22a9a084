"""The RustLog door: JSON over TCP, port 9096."""
