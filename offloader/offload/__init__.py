"""The running application, along one entry's way. `driver/driver.py` is the loop around all of it.

1. `driver/discovery.py`, `driver/adoption.py`: find its topic, take it in.
2. `driver/polling.py`: see the topic's end move.
3. `core/planner.py` (pure): decide, and number the first part of a slice.
4. `driver/lane_plans.py`, `driver/uploads.py`: begin the upload, publish a plan.
5. `spark/plan_server.py`, `spark/plan_source.py`: hand the plan to Spark.
6. `worker/slice_worker.py`: read; `offloader/format/cutter.py` (pure): cut and number parts; `worker/part_uploads.py`:
   upload.
7. `driver/receiving.py`, `core/segments.py` (pure): receipts become journal states.
8. `driver/sealing.py`: complete the object; `driver/committing.py`: append to the catalog.
9. `driver/acknowledging.py`: tell Pulsar.

`driver/work.py` runs what must not hold up the loop. `driver/losses.py`, `driver/reconciling.py` and
`driver/undelivered.py` handle data that does not arrive."""
