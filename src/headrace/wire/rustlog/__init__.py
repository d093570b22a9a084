"""RustLog: JSON requests and responses in length-prefixed frames, as bytes and values."""
