"""ZooKeeper, bookies and BookKeeper's own client as processes; our client beside them."""
