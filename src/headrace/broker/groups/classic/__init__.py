"""The classic group protocol: members join, a leader among them assigns, all sync."""
