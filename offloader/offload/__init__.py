"""The running application. An entry's way through it: `discovery` and `adoption` find its topic, `looking` sees the
topic's end move, `planner` decides (pure), `plan_server` and `datasource` hand the plan to Spark, `tasks` and `worker`
read, cut and upload, `receiving` takes the receipts into `segments`' states (pure), `sealing` and `sealer` commit to
the catalog, `acknowledging` lets Pulsar know. `driver` is the loop around all of it, which posts `work` and takes
results, `application` builds and stops everything, `lanes` says who travels in which (pure), `desk` serves the command
line, `losses`, `incarnations` and `tails` are what happens to data that does not arrive."""
