"""mlog: JSON messages behind a type and a length, and the binary replication batch, as bytes and values."""
