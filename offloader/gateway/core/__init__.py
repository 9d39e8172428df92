"""Who gets which entry of a subscription, and when: events in, decisions out. Pure.

dispatcher      one subscription: begin here; events and decisions are in `events`
single_active   Exclusive and Failover: one consumer gets all
shared          Shared, and what it has in common with Key_Shared
key_shared      Key_Shared: which consumer gets which keys, and the order of each key
hashing         the hash of keys and names that brokers use
waiting         the entries that are read and not acknowledged
reading         what is being read, and what was acknowledged meanwhile
"""
