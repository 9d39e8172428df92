"""Stock clients cannot tell the gateway from the broker that has the same topics."""
