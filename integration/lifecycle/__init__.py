"""The end of data on real processes: ZooKeeper, bookies and brokers apart, and a proxy that freezes a chosen frame."""
