"""From entries to messages: batches unpacked, payloads decompressed and decrypted, chunks put together. No I/O."""
