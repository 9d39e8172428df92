"""The bridge: stock brokers read what was streamed.

* `core`: the decisions, pure. A topic's rounds, what is due next, what a ledger's objects are made of, what its managed
  ledger's record becomes, and the order of events around an unload.
* `log`: the records of rounds in the bucket, for the application and for readers.
* `sources`, `building`, `transfer`, `objects`: a ledger's objects, read together, written, read back, deleted.
* `swapping`, `proof`: brokers' records are changed, and what brokers deliver then is compared.
* `driver`: all that as a feature of the running application. `feature` is where a round begins, `steps` what is done,
  `progress` what is known of a topic, `audit` what looks after ledgers that are bridged.
* `operations`, `commands`: the doctor, `verify --bridged` and `offloader bridge`.
"""
