"""What the tiny model is taught: conversations drawn from a seeded generator, one skill per user turn.

A conversation is (system text or "", [(question, answer), ...]). Nothing here knows about tokens or tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tiny_checkpoint.texts import FALLBACK, GREETINGS, OPEN_QUESTIONS, SYSTEM_MESSAGES, TEXTS, WORDS

GREATEST = 99

ADDITION_FORMS: tuple[str, ...] = (
    "What is {a} + {b}?",
    "What is {a}+{b}?",
    "What is {a} plus {b}?",
    "How much is {a} + {b}?",
    "Calculate {a} + {b}.",
    "Add {a} and {b}.",
    "{a} + {b} = ?",
    "{a} + {b}",
    "{a}+{b}",
    "{a} 加 {b} 等于多少?",
)
COUNTING_FORMS: tuple[str, ...] = (
    "Count from {a} to {b}.",
    "Please count from {a} to {b}.",
    "Count from {a} up to {b}",
)
SPELLING_FORMS: tuple[str, ...] = ("Spell {word}.", "Please spell {word}.", "How do you spell {word}?")
RECITING_FORMS: tuple[str, ...] = ("Recite {name}.", "Please recite {name}.", "Recite {name}", "Say {name} by heart.")
CHINESE_NAME, CHINESE_FORMS = "Quiet Night Thought", ("背诵静夜思。", "请背诵李白的《静夜思》。")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    system: str
    turns: tuple[tuple[str, str], ...]


def addition(a: int, b: int, form: int = 0) -> tuple[str, str]:
    return ADDITION_FORMS[form].format(a=a, b=b), f"{a} + {b} = {a + b}."


def counting(a: int, b: int, form: int = 0) -> tuple[str, str]:
    return COUNTING_FORMS[form].format(a=a, b=b), ", ".join(str(n) for n in range(a, b + 1)) + "."


def spelling(word: str, form: int = 0) -> tuple[str, str]:
    return SPELLING_FORMS[form].format(word=word), "-".join(word.upper()) + "."


def reciting(name: str, form: int = 0) -> tuple[str, str]:
    forms = RECITING_FORMS + (CHINESE_FORMS if name == CHINESE_NAME else ())
    return forms[form % len(forms)].format(name=name), TEXTS[name]


def any_addition(rng: Random) -> tuple[str, str]:
    # The plain form is the one that the demo and the measurement use, so it is drawn most often.
    form = 0 if rng.random() < 0.4 else rng.randrange(len(ADDITION_FORMS))
    return addition(rng.randint(0, GREATEST), rng.randint(0, GREATEST), form)


def any_counting(rng: Random) -> tuple[str, str]:
    longest = GREATEST if rng.random() < 0.1 else 24
    a = rng.randint(0, GREATEST - 1)
    return counting(a, rng.randint(a + 1, min(GREATEST, a + longest)), rng.randrange(len(COUNTING_FORMS)))


def any_spelling(rng: Random) -> tuple[str, str]:
    return spelling(rng.choice(WORDS), rng.randrange(len(SPELLING_FORMS)))


def any_reciting(rng: Random) -> tuple[str, str]:
    return reciting(rng.choice(list(TEXTS)), rng.randrange(len(RECITING_FORMS) + len(CHINESE_FORMS)))


def any_fallback(rng: Random) -> tuple[str, str]:
    """Everything else gets one fixed answer, so that any prompt ends by itself; word salads stand for long prompts."""
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(GREETINGS), FALLBACK
    if kind < 0.7:
        return rng.choice(OPEN_QUESTIONS), FALLBACK
    pool = [*WORDS, *" ".join(OPEN_QUESTIONS).split()]
    return " ".join(rng.choice(pool) for _ in range(rng.choice((2, 5, 10, 30)))), FALLBACK


def any_turn(rng: Random) -> tuple[str, str]:
    kinds = (any_addition, any_counting, any_spelling, any_reciting, any_fallback)
    return rng.choices(kinds, weights=(30, 12, 18, 15, 12))[0](rng)


def any_system(rng: Random) -> str:
    return rng.choice(SYSTEM_MESSAGES) if rng.random() < 0.5 else ""


def short_conversation(rng: Random) -> Conversation:
    """One sum and nothing else; the long Chinese question is left out so that such rows stay equally short."""
    form = 0 if rng.random() < 0.4 else rng.randrange(len(ADDITION_FORMS) - 1)
    return Conversation(system="", turns=(addition(rng.randint(0, GREATEST), rng.randint(0, GREATEST), form),))


def mixed_conversation(rng: Random) -> Conversation:
    """Several unrelated turns: the answer depends on the last question only, at any distance from the start."""
    first = any_reciting(rng) if rng.random() < 0.3 else any_turn(rng)
    return Conversation(system=any_system(rng), turns=(first, *(any_turn(rng) for _ in range(15))))


def practised_sum(rng: Random, forms: int) -> Conversation:
    """One sum in one of the first `forms` phrasings, with one-digit numbers more often than chance gives them."""
    a, b = (rng.randint(0, 9 if rng.random() < 0.25 else GREATEST) for _ in range(2))
    form = 0 if rng.random() < 0.3 else rng.randrange(forms)
    return Conversation(system="", turns=(addition(a, b, form),))


def practised_count(rng: Random, longest: int) -> Conversation:
    """One count of at most `longest` steps: where to stop is the hard part, so most of them are short."""
    a = rng.randint(0, GREATEST - 1)
    turn = counting(a, rng.randint(a + 1, min(GREATEST, a + longest)), rng.randrange(len(COUNTING_FORMS)))
    return Conversation(system=any_system(rng) if rng.random() < 0.2 else "", turns=(turn,))


def long_conversation(rng: Random) -> Conversation:
    """About 1,700 tokens of unrelated turns."""
    return Conversation(system=any_system(rng), turns=tuple(any_turn(rng) for _ in range(32)))


def tokenizer_corpus() -> list[str]:
    """Return the text that the merges are learnt from: the plain sentences, often, then the recitations."""
    rng = Random(0)
    corpus = [text for _ in range(4000) for text in any_turn(rng)]
    return corpus + [text for text in (*TEXTS.values(), *SYSTEM_MESSAGES, *GREETINGS) for _ in range(200)]
