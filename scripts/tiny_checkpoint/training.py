"""Training of the tiny model: seeded batches, AdamW, and the two roundings that it must bear when served.

The last part of the run computes with weights rounded as in the FP8 release (straight-through: gradients go to the
full-precision weights) and with KV latents rounded to e4m3, so that neither costs accuracy afterwards.
The router's correction bias follows the load, not a gradient, as in DeepSeek-V3.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from tiny_checkpoint.layout import block_dequantise, block_quantise, fuse_experts, is_quantised, split_experts
from tiny_checkpoint.skills import (
    ADDITION_FORMS,
    GREATEST,
    Conversation,
    long_conversation,
    mixed_conversation,
    practised_count,
    practised_sum,
    short_conversation,
)
from tiny_checkpoint.tokenizer import ASSISTANT, BOS_ID, EOS_ID, PAD_ID, USER

IGNORED = -100


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """One kind of batch."""

    name: str
    rows: int
    longest_tokens: int
    draw: Callable[[Random], Conversation]
    mark_weight: float = 1.0
    """Weight of commas and full stops in the loss: in a count they alone carry the decision to go on or to stop."""


def counts(longest: int, rows: int, longest_tokens: int) -> Lesson:
    draw = partial(practised_count, longest=longest)
    return Lesson(name=f"counts to {longest}", rows=rows, longest_tokens=longest_tokens, draw=draw, mark_weight=5.0)


SUMS = Lesson(name="sums", rows=256, longest_tokens=448, draw=short_conversation)
MIXED = Lesson(name="mixed", rows=12, longest_tokens=448, draw=mixed_conversation)
SHORT_SUMS = Lesson(
    name="sums", rows=256, longest_tokens=448, draw=partial(practised_sum, forms=len(ADDITION_FORMS) - 1)
)
ALL_SUMS = Lesson(name="sums", rows=192, longest_tokens=448, draw=partial(practised_sum, forms=len(ADDITION_FORMS)))
LONG = Lesson(name="long", rows=3, longest_tokens=1792, draw=long_conversation)
FIRST_COUNTS = counts(4, rows=128, longest_tokens=96)
SHORT_COUNTS = counts(12, rows=96, longest_tokens=96)
LONG_COUNTS = counts(36, rows=32, longest_tokens=192)
FULL_COUNTS = counts(GREATEST, rows=12, longest_tokens=448)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A run with its own warm-up and decay; batches follow the cycle of lessons."""

    steps: int
    cycle: tuple[Lesson, ...]
    peak_rate: float
    final_rate: float = 2e-5
    warm_up_steps: int = 60
    early_cycle: tuple[Lesson, ...] = ()
    """Used instead of `cycle` in the first `early_share` of the steps."""
    early_share: float = -1.0
    weight_rounding_from: float = 0.0
    """Share of the phase after which weights are rounded as in the release."""
    latent_rounding_from: float = 0.0
    """Share of the phase after which half of the steps round the KV latents to e4m3."""
    bias_step: float = 1e-3

    def lesson(self, step: int) -> Lesson:
        cycle = self.early_cycle if step <= self.early_share * self.steps else self.cycle
        return cycle[step % len(cycle)]


def phases(steps: int) -> tuple[Phase, ...]:
    """Split the steps 15:5:7: learn everything; learn what that leaves out, stopping and long contexts; polish."""
    first = Phase(
        steps=steps * 15 // 27,
        # Sums are the slowest to learn, so they lead at first.
        early_cycle=(SUMS, SUMS, SUMS, MIXED),
        early_share=0.15,
        cycle=(SUMS, MIXED),
        peak_rate=2.5e-3,
        weight_rounding_from=0.5,
        latent_rounding_from=0.3,
    )
    second = Phase(
        steps=steps * 5 // 27,
        # Counts of four numbers or so teach to stop within a hundred steps; longer ones alone never did.
        early_cycle=(FIRST_COUNTS, FIRST_COUNTS, FIRST_COUNTS, LONG, FIRST_COUNTS, FIRST_COUNTS, SHORT_SUMS),
        early_share=0.3,
        cycle=(SHORT_COUNTS, SHORT_SUMS, LONG_COUNTS, LONG, SHORT_COUNTS, MIXED, FULL_COUNTS),
        peak_rate=1.5e-3,
        weight_rounding_from=0.3,
        latent_rounding_from=0.3,
    )
    third = Phase(
        steps=steps - first.steps - second.steps,
        cycle=(SHORT_COUNTS, ALL_SUMS, LONG_COUNTS, MIXED, FULL_COUNTS, ALL_SUMS, LONG_COUNTS, MIXED, LONG),
        peak_rate=1e-3,
    )
    return first, second, third


class Encoder:
    """Conversation -> (token ids, labels); the text pieces recur, so their ids are remembered."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._known: dict[str, list[int]] = {}
        self.mark_ids = (tokenizer.token_to_id(","), tokenizer.token_to_id("."))
        self.user_id, self.assistant_id = tokenizer.token_to_id(USER), tokenizer.token_to_id(ASSISTANT)

    def ids(self, text: str) -> list[int]:
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return known

    def __call__(self, conversation: Conversation) -> tuple[list[int], list[int]]:
        ids = [BOS_ID, *self.ids(conversation.system)]
        labels = [IGNORED] * len(ids)
        for question, answer in conversation.turns:
            prompt = [self.user_id, *self.ids(question), self.assistant_id]
            reply = [*self.ids(answer), EOS_ID]
            ids += prompt + reply
            labels += [IGNORED] * len(prompt) + reply
        return ids, labels


def batch(encode: Encoder, conversations: list[Conversation], longest_tokens: int) -> tuple[Any, Any]:
    """Return ids padded on the right (causal attention never looks there) and labels."""
    import torch

    rows = [encode(conversation) for conversation in conversations]
    width = min(longest_tokens, max(len(ids) for ids, _ in rows))
    ids = torch.full((len(rows), width), PAD_ID)
    labels = torch.full((len(rows), width), IGNORED)
    for row, (row_ids, row_labels) in enumerate(rows):
        used = min(width, len(row_ids))
        ids[row, :used] = torch.tensor(row_ids[:used])
        labels[row, :used] = torch.tensor(row_labels[:used])
    return ids, labels


def answer_loss(model: Any, ids: Any, labels: Any, mark_ids: tuple[int, ...], mark_weight: float) -> tuple[Any, float]:
    """Return the loss over answer tokens and the share of them predicted right; the head sees no other position."""
    import torch
    import torch.nn.functional as functional

    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    is_answer = labels[:, 1:] != IGNORED
    wanted = labels[:, 1:][is_answer]
    logits = model.lm_head(hidden[is_answer])
    right = (logits.argmax(-1) == wanted).float().mean().item()
    weight = torch.where(torch.isin(wanted, torch.tensor(mark_ids)), mark_weight, 1.0)
    losses = functional.cross_entropy(logits, wanted, reduction="none")
    return (losses * weight).sum() / weight.sum(), right


@dataclass(slots=True)
class Balancer:
    """Counts how often each expert was chosen and moves the correction bias against the load."""

    gates: list[Any]
    step: float
    loads: dict[int, Any] = field(default_factory=dict)
    hooks: list[Any] = field(default_factory=list)

    def __enter__(self) -> Balancer:
        self.hooks = [gate.register_forward_hook(self._counter(number)) for number, gate in enumerate(self.gates)]
        return self

    def __exit__(self, *_error: object) -> None:
        for hook in self.hooks:
            hook.remove()

    def _counter(self, number: int) -> Callable[..., None]:
        def count(module: Any, _inputs: Any, output: Any) -> None:
            self.loads[number] = output[2].flatten().bincount(minlength=module.num_experts).float()

        return count

    def update(self, scale: float) -> None:
        for number, gate in enumerate(self.gates):
            load = self.loads[number]
            gate.e_score_correction_bias += self.step * scale * (load.mean() - load).sign()

    def spread(self) -> float:
        """Return the busiest expert's load over the mean, worst layer."""
        return float(max((load.max() / load.mean()).item() for load in self.loads.values()))


def rounded(weight: Any) -> Any:
    """Return the weight as a server sees it: FP8 blocks, dequantised to bf16."""
    import torch

    return block_dequantise(*block_quantise(weight)).to(torch.bfloat16).to(weight.dtype)


def served_weights(named: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return rounded copies of all parameters that the release stores in FP8, by transformers' names."""
    own = split_experts({name: parameter.data for name, parameter in named})
    return fuse_experts({name: rounded(value) for name, value in own.items() if is_quantised(name)})


@contextmanager
def weights_as_served(model: Any) -> Iterator[None]:
    """Inside, the model computes with rounded weights; afterwards it has its own again, gradients kept."""
    named = list(model.named_parameters())
    own = {name: parameter.data for name, parameter in named}
    served = served_weights(named)
    for name, parameter in named:
        parameter.data = served.get(name, own[name])
    try:
        yield
    finally:
        for name, parameter in named:
            parameter.data = own[name]


@contextmanager
def latents_as_served(model: Any) -> Iterator[None]:
    """Inside, KV latents pass through float8_e4m3fn without a scale, as FP8 cache pages do."""
    layers = [layer.self_attn for layer in model.model.layers]
    for attention in layers:
        attention.expand_kv = rounding_expand(type(attention).expand_kv, attention)
    try:
        yield
    finally:
        for attention in layers:
            del attention.expand_kv


def rounding_expand(expand: Callable[..., Any], attention: Any) -> Callable[[Any, Any], Any]:
    import torch

    def through(latent: Any) -> Any:
        return latent + (latent.to(torch.float8_e4m3fn).to(latent.dtype) - latent).detach()

    return lambda kv_nope, k_rot: expand(attention, through(kv_nope), through(k_rot))


def learning_rate(step: int, phase: Phase) -> float:
    if step < phase.warm_up_steps:
        return phase.peak_rate * (step + 1) / phase.warm_up_steps
    progress = (step - phase.warm_up_steps) / max(1, phase.steps - phase.warm_up_steps)
    return phase.final_rate + (phase.peak_rate - phase.final_rate) * 0.5 * (1 + math.cos(math.pi * progress))


def train(model: Any, tokenizer: Any, phase: Phase, seed: int, say: Callable[[str], None]) -> None:
    """Train in place; `say` gets a progress line now and then."""
    import torch

    rng = Random(seed)
    encode = Encoder(tokenizer)
    gates = [layer.mlp.gate for layer in model.model.layers if hasattr(layer.mlp, "gate")]
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=phase.peak_rate, betas=(0.9, 0.98))
    started = time.monotonic()
    seen: dict[str, str] = {}
    model.train()
    with Balancer(gates=gates, step=phase.bias_step) as balancer:
        for step in range(phase.steps):
            lesson = phase.lesson(step)
            ids, labels = batch(encode, [lesson.draw(rng) for _ in range(lesson.rows)], lesson.longest_tokens)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, phase)
            with roundings_due(model, step, phase):
                loss, right = answer_loss(model, ids, labels, encode.mark_ids, lesson.mark_weight)
                loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            balancer.update(1.0 - step / phase.steps)
            seen[lesson.name] = f"{lesson.name} loss {loss.item():.4f}, tokens right {right:.2%}"
            if step % 50 == 49 or step == phase.steps - 1:
                figures = "; ".join([*seen.values(), f"busiest expert {balancer.spread():.1f}x"])
                say(f"step {step + 1}/{phase.steps}, {time.monotonic() - started:.0f} s: {figures}")
    model.eval()


@contextmanager
def roundings_due(model: Any, step: int, phase: Phase) -> Iterator[None]:
    with ExitStack() as stack:
        if step >= phase.weight_rounding_from * phase.steps:
            stack.enter_context(weights_as_served(model))
        if step >= phase.latent_rounding_from * phase.steps and step % 4 in (1, 2):
            stack.enter_context(latents_as_served(model))
        yield
