"""The bucket's bytes: data objects, commit manifests, inventory checkpoints, and the keys they live under.

Pure: bytes in, values out. Whoever has these modules and read access to the bucket can find and read every
committed record without a broker. Nothing here may open, wait or ask for the time.
"""
