"""The whole settings file: which keys there are, and loading them from file, environment and flags."""
