"""The Spark data source `pulsar-archive`: batch and streaming reads. Only this folder knows Spark.

How Spark learns what to read. On the driver, from catalogs alone:

1. `data_source` takes the options; `parsing` checks them and makes `SourceOptions`.
2. `selected_topics` finds the topics that they name, and opens the catalog of each as `TopicRecords`.
3. `batch` (or `stream`) asks `planning` for a plan of each topic. It reads the records that the selection needs and
   makes an `ObjectRange` of each segment: the keys of its objects (from its uuid), runs of entries, split points.
4. `planning` splits the ranges into tasks of bounded size. Spark pickles them.

On the executors:

5. `task` reads its ranges with `PlannedReader`. It reads the `-index` object of each, and **only there are the byte
   ranges decided**.
6. `tables` makes rows of the entries.
"""
