"""The archive as pages: what `offloader ui` serves. It reads the bucket and nothing else, and writes nothing."""
