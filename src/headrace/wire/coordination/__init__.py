"""What coordinators keep in internal topics, and what classic consumers exchange through them, in Kafka's formats.

No request is made of these: a coordinator reads and writes them as bytes of records, whatever door its client came through.
"""
