"""The spill: copies of the oldest records that object storage would not take, so that the ring can go on without them."""
