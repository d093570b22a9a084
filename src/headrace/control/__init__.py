"""The control plane: what is true of the cluster, and the one place that decides it."""
