"""The running application, along one entry's way.

`discovery` and `adoption` find its topic, `polling` sees the topic's end move, `planner` decides (pure), `planning` and
`plan_server` hand plans to Spark. `slice_worker` reads, cuts and uploads. `receiving` turns receipts into journal
states by `segments` (pure), `sealing` and `sealer` commit to the catalog, `acknowledging` tells Pulsar. `driver` is the
loop around all of it; it posts `work` and takes results. `losses`, `reconciling` and `undelivered` handle data that
does not arrive."""
