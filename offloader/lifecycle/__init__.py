"""The end of data: what may go, and in which two phases."""
