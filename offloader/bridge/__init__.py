"""The bridge: stock brokers read what was streamed."""
