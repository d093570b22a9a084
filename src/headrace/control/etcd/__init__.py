"""The metastore in an etcd: the port over etcd's own gRPC API."""
