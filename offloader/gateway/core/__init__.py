"""Who gets which entry of a subscription, and when: events in, decisions out. Pure."""
