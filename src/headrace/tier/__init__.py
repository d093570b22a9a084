"""Object storage as the log: what is uploaded, how it is found again, and when it goes away."""
