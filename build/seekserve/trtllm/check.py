"""A nested mapping of LLM arguments against one snapshot of the source: names, types, bounds and words.

Strict as TensorRT-LLM itself, whose models forbid every key they do not know. Rules across arguments are in rules.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .finding import ArgFinding, error, warning
from .kinds import Kind, named
from .schema import ORDER, ROOT, Field, Schema, Snapshot, Union, llm_schema, snapshot
from .values import check_value, nearest, shown

__all__ = ["ABSENCE_RULES", "Target", "check_arguments", "every_path"]

ABSENCE_RULES = ("argument-unknown", "argument-removed", "argument-renamed", "argument-too-new")
_OWNERS = {"torch": "PyTorch", "trt": "TensorRT engine"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    at: Snapshot
    owner: str
    """`torch` or `trt`: the class that takes the arguments."""
    is_partial: bool
    """Laid over other arguments later, so that nothing is missing yet."""


def check_arguments(given: Mapping[str, object], target: Target) -> list[ArgFinding]:
    schema = llm_schema()
    return list(_check_members(given, schema.configs[ROOT], "", target, schema))


def every_path() -> Iterator[tuple[str, Field]]:
    """All dotted paths of the schema, the members of unions without their discriminator."""
    yield from _paths(llm_schema().configs[ROOT], "", llm_schema())


def _check_members(
    given: Mapping[str, object], fields: Mapping[str, Field], prefix: str, target: Target, schema: Schema
) -> Iterator[ArgFinding]:
    for key, value in given.items():
        path = f"{prefix}{key}"
        field = fields.get(key)
        if field is None:
            yield _unknown(str(key), path, fields, schema)
        elif not target.at.has(field.present):
            yield from _absent(field, value, path, target.at)
        else:
            yield from _check_field(field, value, path, target, schema)
    if target.is_partial:
        return
    for key, field in fields.items():
        if field.required_in and key not in given and target.at.has(field.required_in):
            yield error("argument-missing", f"{prefix}{key}", "is missing, but its section needs it", field.note)


def _check_field(field: Field, value: object, path: str, target: Target, schema: Schema) -> Iterator[ArgFinding]:
    owner = field.owner_in(target.at)
    if owner is not None and owner != target.owner:
        message = f"belongs to the {_OWNERS[owner]} backend, and the {_OWNERS[target.owner]} backend refuses it"
        yield error("argument-backend", path, message, field.note or "leave it out")
        return
    if target.at.has(field.deprecated_in):
        use = f"write {field.renamed_to}" if field.renamed_to else field.note
        yield warning("argument-deprecated", path, f"is deprecated in TensorRT-LLM {target.at.label}", use)
    if field.confidence == "unverified":
        yield warning("argument-unverified", path, "unverified: only its name is known")
    problems = list(check_value(field, value, path, target.at))
    yield from problems
    if isinstance(value, dict) and not any(problem.is_error for problem in problems):
        yield from _check_nested(field.kind_in(target.at), value, path, target, schema)


def _check_nested(
    kind: Kind, value: Mapping[str, object], path: str, target: Target, schema: Schema
) -> Iterator[ArgFinding]:
    config, union = named(kind, "config"), named(kind, "union")
    if config is not None:
        yield from _check_members(value, schema.configs[config.target], f"{path}.", target, schema)
    elif union is not None:
        yield from _check_union(schema.unions[union.target], value, path, target, schema)


def _check_union(
    union: Union, value: Mapping[str, object], path: str, target: Target, schema: Schema
) -> Iterator[ArgFinding]:
    member = value.get(union.key)
    where = f"{path}.{union.key}"
    rest = {key: item for key, item in value.items() if key != union.key}
    if member is None and target.is_partial:
        yield from _check_members(rest, schema.union_fields(union, None), f"{path}.", target, schema)
        return
    known = [name for name, each in union.members.items() if target.at.has(each.present)]
    if not isinstance(member, str):
        found = "is missing" if union.key not in value else f"is {shown(member)}"
        yield error(
            "argument-choice", where, f"{found}; it says which settings these are", f"one of {', '.join(known)}"
        )
        return
    if member not in known:
        yield _unknown_member(union, member, where, known)
        return
    entry = union.members[member]
    if entry.only is not None and entry.only != target.owner:
        message = f"{member} exists for the {_OWNERS[entry.only]} backend only"
        yield error("argument-backend", where, message, f"one of {', '.join(_for_owner(union, known, target.owner))}")
        return
    if entry.is_open:
        yield warning("argument-unverified", path, f"unverified: the settings of {member} are not checked")
        return
    yield from _check_members(rest, schema.union_fields(union, member), f"{path}.", target, schema)


def _for_owner(union: Union, names: list[str], owner: str) -> list[str]:
    return [name for name in names if union.members[name].only in (None, owner)]


def _unknown_member(union: Union, member: str, where: str, known: list[str]) -> ArgFinding:
    entry = union.members.get(member)
    near = entry.renamed_to if entry is not None and entry.renamed_to in known else nearest(member, known)
    hint = f"did you mean {near}?" if near else f"one of {', '.join(known)}"
    return error("argument-choice", where, f"{member} is not known here", hint)


def _unknown(key: str, path: str, fields: Mapping[str, Field], schema: Schema) -> ArgFinding:
    mistaken = schema.mistaken.get(key)
    if mistaken is not None:
        return error("argument-unknown", path, "is no argument of tensorrt_llm.LLM", f"here it is {mistaken}")
    near = nearest(key, fields)
    prefix = path.removesuffix(key)
    if near is not None:
        return error("argument-unknown", path, "is no argument of tensorrt_llm.LLM", f"did you mean {prefix}{near}?")
    elsewhere = sorted((where for where, field in every_path() if field.name == key), key=_is_elsewhere_than_cache)
    hint = f"did you mean {' or '.join(elsewhere[:2])}?" if elsewhere else "leave it out"
    return error("argument-unknown", path, "is no argument of tensorrt_llm.LLM", hint)


def _is_elsewhere_than_cache(path: str) -> bool:
    """The cache's settings are what people miss most."""
    return not path.startswith("kv_cache_config.")


def _absent(field: Field, value: object, path: str, at: Snapshot) -> Iterator[ArgFinding]:
    order = [letter for letter in ORDER if letter in field.present]
    use = f"write {field.renamed_to}" if field.renamed_to else field.note or "leave it out"
    older = [letter for letter in order if ORDER.index(letter) < ORDER.index(at.letter)]
    if any(value in field.ignored.get(letter, ()) for letter in at.letters):
        yield warning("argument-removed", path, f"is removed since TensorRT-LLM {at.label} and ignored", "leave it out")
    elif older:
        last = older[-1]
        gone = snapshot(ORDER[ORDER.index(last) + 1])
        rule, word = (
            ("argument-renamed", "has another name") if field.renamed_to else ("argument-removed", "is removed")
        )
        yield error(rule, path, f"{word} since TensorRT-LLM {gone.label} (last seen in {snapshot(last).text})", use)
    elif order:
        first = snapshot(order[0])
        message = f"exists since TensorRT-LLM {first.label} (first seen in {first.text})"
        yield error("argument-too-new", path, message, "leave it out, or aim at a newer version")
    else:
        yield error("argument-renamed", path, "has another name now", use)


def _paths(fields: Mapping[str, Field], prefix: str, schema: Schema) -> Iterator[tuple[str, Field]]:
    for name, field in fields.items():
        yield f"{prefix}{name}", field
        config, union = named(field.kind, "config"), named(field.kind, "union")
        if config is not None:
            yield from _paths(schema.configs[config.target], f"{prefix}{name}.", schema)
        if union is not None:
            members = schema.union_fields(schema.unions[union.target], None)
            yield from _paths(members, f"{prefix}{name}.", schema)
