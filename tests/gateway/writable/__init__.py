"""A gateway that takes messages, too: for suites that produce before they read. Its topics are in memory."""
