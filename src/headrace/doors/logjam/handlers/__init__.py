"""One file per kind of Logjam message."""
