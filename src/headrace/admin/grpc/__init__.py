"""The administrative API over gRPC, from the same table as REST."""
