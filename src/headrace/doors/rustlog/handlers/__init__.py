"""One file per kind of RustLog request."""
