"""The write-ahead log: one circular file per broker, group commit, recovery that tells a torn tail from rot."""
