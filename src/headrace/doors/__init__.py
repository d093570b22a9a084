"""One package per protocol. Doors translate; they reach the engine only through `broker` and never see each other."""
