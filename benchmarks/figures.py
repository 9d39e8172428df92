"""What a benchmark reports: rows of figures, each with its ratio to the row that it is compared with."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Figure:
    """`value` in `unit`; `ratio`: to `of`, the median over the rounds. `target` says what the ratio (or the value)
    should be."""

    name: str
    value: float
    unit: str
    ratio: float | None = None
    of: str = ""
    target: str = ""
    met: bool | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """One benchmark's table. `notes`: what one must know to read it."""

    benchmark: str
    title: str
    figures: Sequence[Figure]
    notes: Sequence[str] = field(default_factory=tuple)

    def as_json(self) -> dict[str, object]:
        return asdict(self)

    def show(self, console: Console) -> None:
        table = Table(title=f"{self.benchmark}: {self.title}", title_justify="left", expand=False)
        table.add_column("what")
        table.add_column("value", justify="right")
        table.add_column("ratio", justify="right")
        table.add_column("of")
        table.add_column("target")
        for f in self.figures:
            verdict = "" if f.met is None else ("  met" if f.met else "  NOT MET")
            ratio = "" if f.ratio is None else f"{f.ratio:.2f}"
            table.add_row(f.name, f"{f.value:,.{_digits(f.value)}f} {f.unit}", ratio, f.of, f.target + verdict)
        console.print(table)
        for note in self.notes:
            console.print(f"  {note}")


def median_ratio(values: Sequence[float], others: Sequence[float]) -> float:
    """The median of the rounds' ratios: what disturbs a round disturbs both of its sides."""
    return statistics.median(a / b for a, b in zip(values, others, strict=True))


def rates(
    measured: dict[str, list[float]], base: str, unit: str = "MB/s", targets: dict[str, tuple[str, float]] | None = None
) -> list[Figure]:
    """One figure a name: the median, and the median ratio to `base` of the same round. `targets`: name -> (text, least
    ratio)."""
    figures = []
    for name, values in measured.items():
        ratio = None if name == base else median_ratio(values, measured[base])
        text, least = (targets or {}).get(name, ("", 0.0))
        met = ratio >= least if text and ratio is not None else None
        figures.append(Figure(name, statistics.median(values), unit, ratio, "" if ratio is None else base, text, met))
    return figures


def _digits(value: float) -> int:
    return 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 3
