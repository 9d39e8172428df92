"""The Spark data source `pulsar-archive`: batch and streaming reads. Nothing else of `archive` knows Spark.

How Spark learns what to read. On the driver, from catalogs alone (with `ledgers`, also from that bucket or brokers):

1. `data_source` takes the options; `parsing` checks them and makes `SourceOptions`.
2. `selected_topics` finds the topics that they name, and opens the catalog of each as `TopicRecords`.
3. `batch` (or `stream`) asks `planning` for a plan of each topic. `records` reads what the selection needs, and
   `reading/plan.py` makes an `ObjectRange` of each segment: the keys of its objects (from its uuid), runs of entries,
   split points (where its parts begin and end).
4. `planning` splits the ranges into tasks of bounded size. Spark pickles them.

On the executors:

5. `task` reads its ranges with `PlannedReader`. It reads the `-index` object of each, and **only there are
   requests and their byte ranges decided**.
6. `tables` makes rows of the entries.
"""
