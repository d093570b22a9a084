"""Controllers: who decides which brokers may lead, and which broker leads what."""
