"""Speculative decoding: settings that are each fine and together are not. DRAFT_RULES is the list.

Read in the validators of llm_args.py. Names, types and bounds of each setting are data in facts/llm_args_unions.yaml.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from .finding import ArgFinding, error
from .rules import Rule
from .view import View

__all__ = ["DRAFT_RULES"]

_SPEC: Final = "speculative_config"
_NEEDS_LENGTH: Final = (
    "Eagle",
    "Eagle3",
    "NGram",
    "Draft_Target",
    "DraftTarget",
    "PARD",
    "DFlash",
    "DSpark",
    "SA",
    "Medusa",
)
_NEEDS_MODEL: Final = ("Eagle", "Eagle3", "Draft_Target", "DraftTarget")
_REJECTION: Final = ("Eagle", "Eagle3", "MTP", "PARD", "DFlash", "DSpark", "Draft_Target")
"""Their drafts come with a distribution, against which a token can be rejected."""


def mtp_draft_length(view: View) -> Iterator[ArgFinding]:
    spec = view.section(_SPEC)
    if spec is None or spec.get("decoding_type") != "MTP":
        return
    old, new = spec.get("num_nextn_predict_layers"), spec.get("max_draft_len")
    reads_new = view.at.has("B")
    if new is not None and not reads_new and new != old:
        message = f"is {new}, but with MTP it is overwritten by num_nextn_predict_layers, which is {old or 1}"
        hint = "write num_nextn_predict_layers up to 1.3, max_draft_len since 1.4"
        yield error("mtp-length", f"{_SPEC}.max_draft_len", message, hint)
    if reads_new and old is not None and new is not None and new != old:
        message = f"is {old}, but max_draft_len is {new} and wins"
        yield error("mtp-length", f"{_SPEC}.num_nextn_predict_layers", message, "give max_draft_len only")
    if reads_new and new == 0:
        yield error("mtp-length", f"{_SPEC}.max_draft_len", "is 0, but MTP needs 1 or more")


def draft_settings(view: View) -> Iterator[ArgFinding]:
    spec = view.section(_SPEC)
    if spec is None:
        return
    kind = spec.get("decoding_type")
    model = spec.get("speculative_model") or spec.get("speculative_model_dir")
    if kind in _NEEDS_LENGTH and not spec.get("max_draft_len"):
        yield error("draft-length", f"{_SPEC}.max_draft_len", f"is missing, but {kind} needs 1 or more")
    if kind in _NEEDS_MODEL and not model:
        yield error("draft-model", f"{_SPEC}.speculative_model", f"is missing, but {kind} needs a draft model")
    if "speculative_model" in spec and "speculative_model_dir" in spec:
        message = "is another name of speculative_model, which is given too"
        yield error("draft-model", f"{_SPEC}.speculative_model_dir", message, "give one of them")
    if kind == "SaveState" and not spec.get("output_directory"):
        yield error("draft-output", f"{_SPEC}.output_directory", "is missing, but SaveState needs it")


def draft_schedule(view: View) -> Iterator[ArgFinding]:
    path = f"{_SPEC}.draft_len_schedule"
    schedule, top = view.section(path), view.given(f"{_SPEC}.max_draft_len")
    if schedule is None:
        return
    if view.at.has("B") and view.given(f"{_SPEC}.max_concurrency") is not None:
        yield error("draft-schedule", path, "excludes max_concurrency, which is given too", "give one of them")
    given: dict[object, object] = dict(schedule.items())
    lengths = {batch: length for batch, length in given.items() if isinstance(batch, int) and isinstance(length, int)}
    if not schedule:
        yield error("draft-schedule", path, "is empty", "leave it out, or write such as {1: 3, 8: 0}")
    elif len(lengths) == len(given):
        yield from _lengths(lengths, top, path, must_begin_at_one=not view.at.has("B"))


def _lengths(lengths: Mapping[int, int], top: object, path: str, *, must_begin_at_one: bool) -> Iterator[ArgFinding]:
    first = min(lengths)
    if first < 1 or min(lengths.values()) < 0:
        yield error("draft-schedule", path, "maps batch sizes of 1 and more to draft lengths of 0 and more")
    elif must_begin_at_one and first != 1:
        yield error("draft-schedule", path, "has no entry for batch size 1", "such as {1: max_draft_len, 8: 0}")
    elif type(top) is int and lengths[first] != top:
        yield error("draft-schedule", path, f"begins with {lengths[first]}, but max_draft_len is {top}")
    elif type(top) is int and max(lengths.values()) > top:
        yield error("draft-schedule", path, f"has a length of {max(lengths.values())}, but max_draft_len is {top}")


def dynamic_tree(view: View) -> Iterator[ArgFinding]:
    if view.given(f"{_SPEC}.use_dynamic_tree") is not True:
        return
    if not view.given(f"{_SPEC}.dynamic_tree_max_topK"):
        yield error("draft-tree", f"{_SPEC}.dynamic_tree_max_topK", "is missing, but use_dynamic_tree needs 1 or more")
    if view.given(f"{_SPEC}.eagle_choices") is not None:
        yield error("draft-tree", f"{_SPEC}.eagle_choices", "is a static tree, which use_dynamic_tree excludes")


def rejection_sampling(view: View) -> Iterator[ArgFinding]:
    path = f"{_SPEC}.use_rejection_sampling"
    kind = view.given(f"{_SPEC}.decoding_type")
    if view.given(path) is True and view.at.has("B") and kind not in _REJECTION:
        yield error("draft-rejection", path, f"{kind} drafts without probabilities to sample against", "leave it out")


def suffix_automaton(view: View) -> Iterator[ArgFinding]:
    spec = view.section(_SPEC)
    if spec is None or spec.get("decoding_type") != "SA":
        return
    length, is_global, slots = (
        spec.get(key) for key in ("max_matching_ngram_size", "enable_global_pool", "global_pool_size")
    )
    path = f"{_SPEC}.max_matching_ngram_size"
    if length == 0:
        yield error("draft-suffix", path, "is 0, neither a length nor -1, the longest match")
    elif is_global is True and type(length) is int and length != -1 and not 1 <= length <= 64:
        yield error("draft-suffix", path, f"is {length}, but enable_global_pool takes -1 or 1 to 64")
    if slots is None:
        return
    path, batch = f"{_SPEC}.global_pool_size", view.number("max_batch_size")
    if is_global is not True:
        yield error("draft-suffix", path, f"is {slots}, but enable_global_pool is off", "switch it on")
    elif type(slots) is int and batch is not None and slots < batch:
        yield error("draft-suffix", path, f"is {slots}, but max_batch_size is {batch}", f"at least {batch}")


def block_of_the_draft(view: View) -> Iterator[ArgFinding]:
    spec = view.section(_SPEC)
    if spec is None or spec.get("decoding_type") != "DSpark":
        return
    block, length = spec.get("block_size"), spec.get("max_draft_len")
    if type(block) is int and type(length) is int and block != length:
        yield error(
            "draft-block", f"{_SPEC}.block_size", f"is {block}, but max_draft_len is {length}", "make them equal"
        )


DRAFT_RULES: Final[tuple[Rule, ...]] = (
    mtp_draft_length,
    draft_settings,
    draft_schedule,
    dynamic_tree,
    rejection_sampling,
    suffix_automaton,
    block_of_the_draft,
)
