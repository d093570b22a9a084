"""The node's own door: health and metrics, on 9642. A door like the others; see `doors/`."""
