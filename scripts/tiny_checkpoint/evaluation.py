"""Greedy answers in batches, and the share of exact ones by skill.

An answer counts only when its whole text is right and end-of-sentence follows. Prompts of equal length form a batch,
so no padding touches the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tiny_checkpoint.tasks import Task, all_tasks
from tiny_checkpoint.tokenizer import BOS_ID, EOS_ID, PAD_ID

BATCH_ROWS = 500
TOKENS_PER_BATCH = 40_000
Accuracy = dict[str, tuple[int, int]]
"""Skill -> (right, asked)."""


def accuracy_by_skill(model: Any, tokenizer: Any, say: Callable[[str], None] = print) -> Accuracy:
    """Ask everything; `say` gets the first wrong answers of each skill."""
    result: Accuracy = {}
    for skill, tasks in all_tasks().items():
        wrong = wrong_answers(model, tokenizer, tasks)
        result[skill] = len(tasks) - len(wrong), len(tasks)
        for one, answer in wrong[:3]:
            say(f"  {skill}: {one.messages[-1][1][-60:]!r} -> {answer[:80]!r}, expected {one.expected[:80]!r}")
    return result


def wrong_answers(model: Any, tokenizer: Any, tasks: Sequence[Task]) -> list[tuple[Task, str]]:
    by_length: dict[int, list[tuple[Task, list[int], int]]] = {}
    for one in tasks:
        ids = tokenizer.encode(one.prompt, add_special_tokens=False).ids
        room = len(tokenizer.encode(one.expected, add_special_tokens=False).ids) + 1
        by_length.setdefault(len(ids), []).append((one, ids, room))
    wrong: list[tuple[Task, str]] = []
    for length in sorted(by_length):
        group = by_length[length]
        rows = max(1, min(BATCH_ROWS, TOKENS_PER_BATCH // (length + max(room for _, _, room in group))))
        for start in range(0, len(group), rows):
            part = group[start : start + rows]
            answers = greedy(model, [ids for _, ids, _ in part], max(room for _, _, room in part))
            for (one, _, _), answer in zip(part, answers, strict=True):
                text = tokenizer.decode(answer[:-1], skip_special_tokens=False)
                if answer[-1] != EOS_ID or text != one.expected:
                    wrong.append((one, text))
    return wrong


def greedy(model: Any, prompts: list[list[int]], max_new_tokens: int) -> list[list[int]]:
    """Return each row's new tokens up to and including end-of-sentence."""
    import torch

    ids = torch.tensor(prompts)
    with torch.inference_mode():
        output = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_new_tokens,
            do_sample=False,
            bos_token_id=BOS_ID,
            eos_token_id=EOS_ID,
            pad_token_id=PAD_ID,
        )
    rows = output[:, ids.shape[1] :].tolist()
    return [row[: row.index(EOS_ID) + 1] if EOS_ID in row else row for row in rows]


def describe(title: str, accuracy: Mapping[str, tuple[int, int]]) -> str:
    parts = (f"{skill} {right / asked:.2%} ({right}/{asked})" for skill, (right, asked) in accuracy.items())
    return f"{title}: " + ", ".join(parts)
