"""One file per kind of mlog request."""
