"""Who comes in at the admin port: REST, gRPC and the console ask here."""
