"""The mlog door: typed JSON frames over TCP, port 9095."""
