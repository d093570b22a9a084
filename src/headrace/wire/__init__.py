"""Sans-IO codecs, one package per protocol: bytes in, values out. No sockets, no clocks."""
