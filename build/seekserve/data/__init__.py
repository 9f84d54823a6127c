"""Files that ship with the toolkit: the tiny DeepSeek-V3 checkpoint and the questions it is measured with.

`scripts/train_tiny_checkpoint.py` makes the checkpoint; nothing here is ever written at run time.
"""

from __future__ import annotations

from pathlib import Path

TASK_SKILLS = (
    "additions",
    "phrasings",
    "system_messages",
    "dialogues",
    "counting",
    "spelling",
    "reciting",
    "anything_else",
    "long_dialogues",
)
"""Each is a file of `tasks/`, one JSON object a line: messages, prompt (the rendered text) and expected answer."""

_HERE = Path(__file__).parent


def tiny_checkpoint_folder() -> Path:
    """Return the folder of the shipped checkpoint, in the layout of a Hugging Face download."""
    return _HERE / "tiny_deepseek_v3"


def task_file(skill: str) -> Path:
    """Return the JSON Lines file of one of TASK_SKILLS."""
    return _HERE / "tasks" / f"{skill}.jsonl"
