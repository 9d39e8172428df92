"""Topics and their subscriptions as they are served: reads and cursors in threads, everything else on the loop."""
