"""The running application: planner, source, worker, committer. Read in this order: `planner`, `worker`, `segments`, `sealer`, `driver`,
`application`."""
