"""Both trees and the health checks over what was read; findings as text and as JSON. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seekserve.errors import InputError
from seekserve.simulate.slo import ClassSlo

from .reading import Scrape
from .rules_health import HEALTH
from .rules_latency import LATENCY
from .rules_throughput import THROUGHPUT
from .tree import Finding, Kind, walk
from .view import View
from .window import Window, windows_of
from .words import seconds

__all__ = ["TREES", "Diagnosis", "diagnose", "diagnosis_text"]

TREES = (HEALTH, LATENCY, THROUGHPUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    windows: tuple[Window, ...]
    findings: tuple[Finding, ...]

    @property
    def is_wrong(self) -> bool:
        """Something beside notes was found."""
        return any(finding.kind is not Kind.NOTE for finding in self.findings)

    def to_json(self, scrapes: Sequence[Scrape]) -> dict[str, object]:
        return {
            "is_wrong": self.is_wrong,
            "windows": [{"server": w.server, "model": w.model, "seconds": round(w.seconds, 3)} for w in self.windows],
            "findings": [finding.to_json() for finding in self.findings],
            "scrapes": [scrape.to_json() for scrape in scrapes],
        }


def diagnose(
    scrapes: Sequence[Scrape], *, promised: Mapping[str, ClassSlo] | None = None, model: str | None = None
) -> Diagnosis:
    """Raises InputError where they hold no model, or one look at each only: then nothing is known of what happens."""
    windows = windows_of(scrapes)
    names = sorted({window.model for window in windows})
    if model is not None:
        windows = [window for window in windows if window.model == model]
    if not windows:
        known = f"; they are of {', '.join(names)}" if names else ""
        wanted = "a model of the seekserve backend" if model is None else f"the model {model!r}"
        raise InputError(f"the metrics hold no numbers of {wanted}{known}", hint="is it served there?")
    if all(len(window.times_s) < 2 for window in windows):
        raise InputError("one look at the metrics says nothing about rates and percentiles; two are needed")
    found = [finding for window in windows for finding in walk(TREES, View(window=window, promised=promised))]
    order = list(Kind)
    found.sort(key=lambda each: (order.index(each.kind), -each.strength, each.server, each.model, each.id))
    return Diagnosis(windows=tuple(windows), findings=tuple(found))


def diagnosis_text(diagnosis: Diagnosis, *, width: int = 100) -> str:
    """The answer first; then each finding with its numbers and what to do."""
    windows, findings = diagnosis.windows, diagnosis.findings
    about = ", ".join(f"{w.model} at {w.server} over {seconds(w.seconds)}" for w in windows)
    wrong = [each for each in findings if each.kind is not Kind.NOTE]
    notes = len(findings) - len(wrong)
    if not wrong:
        head = "Nothing is wrong" + (f" ({notes} note{'s' if notes > 1 else ''})" if notes else "") + f": {about}."
    else:
        more = f", and {len(findings) - 1} more" if len(findings) > 1 else ""
        head = f"{wrong[0].what.rstrip('.')}{more}: {about}."
    lines = textwrap.wrap(head, width)
    names_whom = len(windows) > 1
    for n, each in enumerate(findings, start=1):
        whom = f" [{each.model} at {each.server}]" if names_whom else ""
        title = f"{n}. {each.kind.value}: {each.what} ({each.id}){whom}"
        lines += ["", *textwrap.wrap(title, width, subsequent_indent="   ")]
        for label, texts in (("shown by", each.numbers), ("found by", each.paths), ("change", (each.change,))):
            for text in texts:
                lines += textwrap.wrap(text, width, initial_indent=f"   {label + ':':9} ", subsequent_indent=" " * 13)
                label = ""
    return "\n".join(line.replace("   :         ", " " * 13) for line in lines)
