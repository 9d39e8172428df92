"""Object stores, as `offloader/ports/object_store.py` says. Only here is a store's SDK imported.

`open.py` finds a URL's store: `s3.py`, `gcs.py`, `azure.py`, `webhdfs.py`, `local.py`, `memory.py`, or `fsspec.py` for
any other, each with its helpers (`s3_calls.py`). `rules.py` is what they share, `calls.py` and `settings.py` what those
of clouds do. CONTRIBUTING.md has the steps to add one."""
