"""Why a bookie still has the data of deleted ledgers, and what to do. Pure.

As BookKeeper 4.17.2 was seen to do it. A collection drops what is no ledger's any more, and the entry logs in which
nothing else is: no disk suspends that. Compaction rewrites entry logs of which a part is live: full disks suspend it.
"""

from __future__ import annotations

from collections.abc import Iterator

from offloader.lifecycle.explaining.bookie_facts import DETAILS, SUSPENDED, BookieFacts
from offloader.lifecycle.explaining.words import Explanation, counted, moment_text, share_text, size_text, span_text

SILENT = "it does not answer"
FORCE = '{"forceMajor":true,"forceMinor":true}'

_IN_ITS_LOG = (
    "Until then look into its log: `Disk full, suspend` and `Disk almost full, suspend` say that compaction is "
    "suspended, `Enter major compaction` when it last ran.",
)


def explain_bookie(facts: BookieFacts, *, registered: bool = True) -> Explanation:
    """What it says of its collection, in sentences. `registered`: it has a session with ZooKeeper."""
    away = () if registered else (f"{facts.bookie} is not registered in ZooKeeper: while it is down it frees nothing.",)
    silent = facts.configuration is None and not facts.collectors and facts.free is None
    if facts.url is None or silent:
        why = f"{facts.bookie} publishes no address" if facts.url is None else next(iter(facts.failed.values()), SILENT)
        return Explanation.of([*away, _general(facts.bookie)], _IN_ITS_LOG, [_switch_on(why)])
    said = (_collection, _compactions, _suspension, _space, _throttle, _force)
    return Explanation.of(
        (*away, *(sentence for each in said for sentence in each(facts))),
        _advice(facts),
        (f"{path}: {why}." for path, why in facts.failed.items()),
    )


def _general(bookie: str) -> str:
    return (
        f"{bookie} frees a deleted ledger's data when it next collects: every {span_text(600)} by default "
        f"({span_text(900)} in Pulsar's own bookkeeper.conf). What shares an entry log with live data goes only when "
        "that log is compacted."
    )


def _switch_on(why: str) -> str:
    return (
        f"How it stands can be asked by HTTP only, and {why}. Set httpServerEnabled=true, httpServerPort=8000 and "
        "httpServerClass=org.apache.bookkeeper.http.vertx.VertxHttpServer in bookkeeper.conf (and httpServerHost, "
        "where it must be reached from elsewhere), restart it, or name the address with --bookie-http http://HOST:8000."
    )


def _collection(facts: BookieFacts) -> Iterator[str]:
    wait = facts.number("gcWaitTime") / 1000
    yield (
        f"Every {span_text(wait)} {facts.bookie} looks which of its ledgers are deleted (gcWaitTime), the first time "
        f"{span_text(2 * wait)} after its start or later."
    )
    yield "A deleted ledger stays readable until then, and an entry log in which nothing is live goes at the same time."
    if facts.forced:
        yield "A collection that somebody asked for is running now."
    elif any(one.compacting for one in facts.collectors):
        yield "It is compacting now."


def _compactions(facts: BookieFacts) -> Iterator[str]:
    for name, ran in (("minor", "minor_runs"), ("major", "major_runs")):
        interval, threshold = facts.number(f"{name}CompactionInterval"), facts.number(f"{name}CompactionThreshold")
        if interval <= 0 or threshold <= 0:
            off = "interval" if interval <= 0 else "threshold"
            yield f"Its {name} compaction is switched off ({name}Compaction{off.capitalize()} is 0)."
            continue
        yield (
            f"Every {span_text(interval)} it rewrites the entry logs of which less than {share_text(threshold)} is "
            f"live ({name} compaction)."
        )
        if facts.collectors:
            runs = sum(getattr(one, ran) for one in facts.collectors)
            last = max(getattr(one, f"{name}_at") for one in facts.collectors)
            yield (
                f"It has done so {counted(runs, 'time')} since its start, last at {moment_text(last)}."
                if runs
                else f"It has not done so since its start at {moment_text(last)}."
            )


def _suspension(facts: BookieFacts) -> Iterator[str]:
    suspended = [n for n, is_so in (("minor", facts.minor_suspended), ("major", facts.major_suspended)) if is_so]
    if suspended:
        warn, full = (share_text(facts.number(name)) for name in ("diskUsageWarnThreshold", "diskUsageThreshold"))
        yield (
            f"Its {' and '.join(suspended)} compaction {'are' if len(suspended) > 1 else 'is'} suspended: a ledger "
            f"disk is used above {warn} (diskUsageWarnThreshold suspends major compaction) or above {full} "
            "(diskUsageThreshold suspends both), or somebody suspended it by hand."
        )
        yield "Meanwhile what shares an entry log with live data is not freed; whole dead entry logs still go."


def _space(facts: BookieFacts) -> Iterator[str]:
    if facts.total and facts.free is not None:
        used = 1 - facts.free / facts.total
        yield (
            f"Its disks have {size_text(facts.free)} free of {size_text(facts.total)}: {share_text(used)} is used, all "
            "directories together; one of them may be fuller."
        )
    if facts.entry_logs is not None:
        yield f"It has {counted(facts.entry_logs, 'entry log')}."
    if facts.read_only:
        yield "It is read only: it takes no writes, and comes back once its disks are below the threshold."


def _throttle(facts: BookieFacts) -> Iterator[str]:
    if facts.switch("isThrottleByBytes"):
        rate = facts.number("compactionRateByBytes")
        yield f"Compaction writes at most {size_text(rate)} a second (isThrottleByBytes)."
        return
    entries = counted(int(facts.number("compactionRateByEntries")), "entry")
    yield f"Compaction writes at most {entries} a second, whatever their size (isThrottleByBytes is off)."


def _force(facts: BookieFacts) -> Iterator[str]:
    if facts.switch("forceAllowCompaction"):
        yield (
            "With forceAllowCompaction=true a collection that is asked for compacts also where compaction's interval "
            "is 0. It does not lift a suspension."
        )
    if facts.switch("isForceGCAllowWhenNoSpace"):
        yield "With isForceGCAllowWhenNoSpace=true a full disk makes it collect at once, and suspends nothing."


def _advice(facts: BookieFacts) -> Iterator[str]:
    gc = f"{facts.url}/api/v1/bookie/gc"
    yield f"To have it collect now: curl -X PUT {gc}"
    if facts.major_suspended or facts.minor_suspended:
        yield (
            f"To have it compact in spite of the suspension, once: curl -X PUT {gc} -d '{FORCE}'. It needs free space "
            "for what it rewrites."
        )
        yield (
            "To end the suspension: free space on that disk, or raise diskUsageThreshold and diskUsageWarnThreshold in "
            f"bookkeeper.conf and restart it; where it was suspended by hand, curl -X PUT {facts.url}/api/v1/bookie/gc/"
            'resume_compaction -d \'{"resumeMajor":true,"resumeMinor":true}\'.'
        )
    both = (f"{name}Compaction{what}" for name in ("minor", "major") for what in ("Interval", "Threshold"))
    off = any(facts.number(name) <= 0 for name in both)
    if off and not facts.switch("forceAllowCompaction"):
        yield (
            "Compaction that is switched off does not run when it is asked for either: set forceAllowCompaction=true "
            "(thresholds must be set), or give it an interval."
        )
    if not facts.switch("isThrottleByBytes"):
        yield "Where compaction disturbs the ledger disks, set isThrottleByBytes=true: entries differ in size."
    if DETAILS in facts.failed or SUSPENDED in facts.failed:
        yield "An older bookie has fewer end points: its log says `Disk full, suspend` when compaction is suspended."
