#headrace ceilings 1 2e7fd31f
{"broker_id":1,"broker_epoch":7,"created_ms":1700000000000,"topics":{"00010203-0405-0607-0809-0a0b0c0d0e0f":[65536,null,1099511627776]}}
