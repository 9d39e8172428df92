"""Who gets which entry of a subscription, and when: events in, decisions out. Pure.

dispatcher      one subscription: begin here; events and decisions are in `events`
single_active   Exclusive and Failover: one consumer gets all
sharing         what Shared and Key_Shared have in common; `shared` and `key_shared` are what they have not
keys            which consumer of Key_Shared gets which keys
waiting         the entries that are read and not acknowledged
reading         what is being read, and what was acknowledged meanwhile
"""
