"""What Pulsar stores of a topic: its managed ledger, its subscriptions, and how their nodes encode them. No I/O."""
