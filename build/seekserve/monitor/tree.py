"""Trees of questions that end in findings. A branch is entered where its question is answered with evidence; a leaf
that finds evidence says what is wrong, by which numbers, and what to change. Data and a walk; the questions are in the
`rules_` modules. Pure.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from .view import View

__all__ = ["Branch", "Evidence", "Finding", "Kind", "Leaf", "walk"]


class Kind(str, enum.Enum):
    FAULT = "fault"  # something is broken
    OVERLOAD = "overload"  # more is asked than can be given
    UNEXPLAINED = "unexplained"  # it shows, and no rule says why
    WASTE = "waste"  # it works, and could do better
    NOTE = "note"  # worth knowing; nothing is wrong


_ORDER = tuple(Kind)


@dataclass(frozen=True, slots=True)
class Evidence:
    strength: float
    """How far beyond what is allowed: 1 is at the bound. Findings of a kind are ordered by it."""
    numbers: tuple[str, ...]
    """What shows it, with units."""


Look: TypeAlias = "Callable[[View], Evidence | None]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    id: str
    kind: Kind
    what: str
    """One sentence."""
    change: str
    """What to do about it."""
    look: Look


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    name: str
    """As it is shown on the way to a finding."""
    look: Look
    leaves: tuple[Leaf | Branch, ...]
    unexplained: Leaf | None = None
    """What is said where the question is answered with yes and nothing below explains it; its own look is not asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    id: str
    kind: Kind
    server: str
    model: str
    what: str
    numbers: tuple[str, ...]
    change: str
    strength: float
    paths: tuple[str, ...]
    """The ways that lead to it, as `latency > first token > waiting`."""

    def to_json(self) -> dict[str, object]:
        return {
            "id": self.id,
            "kind": self.kind.value,
            "server": self.server,
            "model": self.model,
            "what": self.what,
            "numbers": list(self.numbers),
            "change": self.change,
            "strength": round(self.strength, 3),
            "paths": list(self.paths),
        }


def walk(trees: Sequence[Branch], view: View) -> list[Finding]:
    """Everything found, the worst kind first, then by strength of evidence; one that several ways lead to once."""
    found: dict[str, Finding] = {}
    for tree in trees:
        for finding in _enter(tree, view, ()):
            known = found.get(finding.id)
            if known is None:
                found[finding.id] = finding
            else:
                numbers = tuple(dict.fromkeys((*known.numbers, *finding.numbers)))
                paths = tuple(dict.fromkeys((*known.paths, *finding.paths)))
                found[finding.id] = replace(
                    known, numbers=numbers, paths=paths, strength=max(known.strength, finding.strength)
                )
    return sorted(found.values(), key=lambda each: (_ORDER.index(each.kind), -each.strength, each.id))


def _enter(branch: Branch, view: View, path: tuple[str, ...]) -> Iterator[Finding]:
    evidence = branch.look(view)
    if evidence is None:
        return
    path = (*path, branch.name)
    is_explained = False
    for child in branch.leaves:
        below = _enter(child, view, path) if isinstance(child, Branch) else _leaf(child, view, path)
        for finding in below:
            is_explained = True
            # Symptoms go with their cause: they are what the operator saw.
            yield replace(finding, numbers=tuple(dict.fromkeys((*finding.numbers, *evidence.numbers))))
    if not is_explained and branch.unexplained is not None:
        yield _finding(branch.unexplained, evidence, view, path)


def _leaf(leaf: Leaf, view: View, path: tuple[str, ...]) -> Iterator[Finding]:
    evidence = leaf.look(view)
    if evidence is not None:
        yield _finding(leaf, evidence, view, path)


def _finding(leaf: Leaf, evidence: Evidence, view: View, path: tuple[str, ...]) -> Finding:
    return Finding(
        id=leaf.id,
        kind=leaf.kind,
        server=view.window.server,
        model=view.window.model,
        what=leaf.what,
        numbers=evidence.numbers,
        change=leaf.change,
        strength=evidence.strength,
        paths=(" > ".join(path),),
    )
