"""Searching a whole topic in the bucket, in processes of its own: the broker's loop and interpreter have no part in it."""
