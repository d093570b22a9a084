"""Values of records by a schema: Avro and Protobuf as JSON, for a person to look at.

Nobody who moves records needs this: a broker keeps bytes. It is for who shows them, and what it costs is bounded whatever the bytes say.
"""
