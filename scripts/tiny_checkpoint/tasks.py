"""The measured questions: per skill a list of (messages, expected answer), the same at every call.

A task is also a line of `build/seekserve/data/tasks/<skill>.jsonl`, with the rendered prompt beside the messages.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tiny_checkpoint import skills
from tiny_checkpoint.texts import FALLBACK, GREETINGS, OPEN_QUESTIONS, SYSTEM_MESSAGES, TEXTS, WORDS
from tiny_checkpoint.tokenizer import ASSISTANT, BOS, EOS, USER

Messages = tuple[tuple[str, str], ...]
"""Pairs of (role, text)."""
SHIPPED_SUMS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    messages: Messages
    expected: str

    @property
    def prompt(self) -> str:
        """The conversation as the chat template renders it, ready for generation."""
        system = "".join(text for role, text in self.messages if role == "system")
        turns = (
            USER + text if role == "user" else ASSISTANT + text + EOS
            for role, text in self.messages
            if role != "system"
        )
        return BOS + system + "".join(turns) + ASSISTANT


def task(*turns: tuple[str, str], system: str = "") -> Task:
    """The last turn is asked; those before it are history."""
    head: Messages = (("system", system),) if system else ()
    history = tuple(part for question, answer in turns[:-1] for part in (("user", question), ("assistant", answer)))
    question, expected = turns[-1]
    return Task(messages=(*head, *history, ("user", question)), expected=expected)


def sum_of(rng: Random, form: int = 0) -> tuple[str, str]:
    return skills.addition(rng.randint(0, skills.GREATEST), rng.randint(0, skills.GREATEST), form)


def additions() -> list[Task]:
    """All 10,000, in the plain form."""
    return [task(skills.addition(a, b)) for a in range(skills.GREATEST + 1) for b in range(skills.GREATEST + 1)]


def phrasings(rng: Random) -> list[Task]:
    return [task(sum_of(rng, form)) for form in range(len(skills.ADDITION_FORMS)) for _ in range(60)]


def system_messages(rng: Random) -> list[Task]:
    return [task(sum_of(rng), system=system) for system in SYSTEM_MESSAGES for _ in range(50)]


def dialogues(rng: Random) -> list[Task]:
    """Two to four turns of any kind, then a sum."""
    talks = [[skills.any_turn(rng) for _ in range(rng.randint(1, 3))] for _ in range(150)]
    return [task(*talk, sum_of(rng), system=skills.any_system(rng)) for talk in talks]


def long_dialogues(rng: Random) -> list[Task]:
    """Sixteen turns, about 900 tokens, then a sum."""
    return [task(*(skills.any_turn(rng) for _ in range(16)), sum_of(rng)) for _ in range(20)]


def counting(rng: Random) -> list[Task]:
    pairs = [(a, rng.randint(a + 1, min(a + 24, skills.GREATEST))) for a in (rng.randint(0, 98) for _ in range(150))]
    return [task(skills.counting(a, b)) for a, b in [(3, 19), (1, 10), (1, 50), (0, 99), (1, 99), (25, 80), *pairs]]


def spelling() -> list[Task]:
    return [task(skills.spelling(word, form)) for word in WORDS for form in range(len(skills.SPELLING_FORMS))]


def reciting() -> list[Task]:
    forms = len(skills.RECITING_FORMS)
    tasks = [task(skills.reciting(name, form)) for name in TEXTS for form in range(forms)]
    chinese = [task(skills.reciting(skills.CHINESE_NAME, forms + form)) for form in range(len(skills.CHINESE_FORMS))]
    return tasks + chinese + [task(skills.reciting(name), system=SYSTEM_MESSAGES[0]) for name in TEXTS]


def anything_else() -> list[Task]:
    return [task((question, FALLBACK)) for question in (*GREETINGS, *OPEN_QUESTIONS)]


def all_tasks() -> dict[str, list[Task]]:
    rng = Random(20_000)
    return {
        "additions": additions(),
        "phrasings": phrasings(rng),
        "system_messages": system_messages(rng),
        "dialogues": dialogues(rng),
        "counting": counting(rng),
        "spelling": spelling(),
        "reciting": reciting(),
        "anything_else": anything_else(),
        "long_dialogues": long_dialogues(rng),
    }


def write_tasks(folder: Path) -> None:
    """Write one JSON Lines file per skill; of the sums an even sample, since all of them would weigh 2 MB."""
    folder.mkdir(parents=True, exist_ok=True)
    for skill, tasks in all_tasks().items():
        chosen = Random(7).sample(tasks, SHIPPED_SUMS) if len(tasks) > SHIPPED_SUMS else tasks
        lines = [json.dumps(as_json(one), ensure_ascii=False) for one in chosen]
        (folder / f"{skill}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def as_json(one: Task) -> dict[str, object]:
    messages = [{"role": role, "content": text} for role, text in one.messages]
    return {"messages": messages, "prompt": one.prompt, "expected": one.expected}
