"""What an administrator can ask of a node, whatever the transport: one table of routes, and who answers them."""
