"""Retention of the archive: which segments go, in which phases, and who does it.

`policy` and `plan` decide, from values alone. `holdings` reads what they need of a catalog, and looks into kept
segments for messages that begin before them. `phases` takes one topic a step further: *deleting*, the second look,
*begun*, the objects, *deleted*; `offloader/metadata/deletions.py` has the records of these.

The archive may be the only copy. So:

* Nothing goes without a record that has been readable for the whole grace, and that one record takes back.
* The second look is a record, too: what was looked at cannot change behind it without that being seen.
* Whole segments, oldest first, of each incarnation for itself. So what went is a beginning, and one range says it.
* Time is that of the catalog's parts, and never earlier than the seal's: no producer's clock makes data go early.
* What is told to be deleted is told first and gone later: a reader has the data, or the record that says why not.
* Each step can be repeated. Objects go data first, then index; a tombstone takes the place of the record beside them,
  so that a rebuild from these alone makes neither a loss nor damage of it.
"""
