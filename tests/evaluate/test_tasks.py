"""Task files: what is read, what is refused, and when an answer is right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seekserve.data import TASK_SKILLS
from seekserve.errors import ConfigError
from seekserve.evaluate.tasks import MATCHES, is_right, read_task_sets


def write(folder: Path, *lines: object, name: str = "t.jsonl") -> str:
    path = folder / name
    texts = [line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines]
    path.write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    return str(path)


def problems_of(*names: str, match: str = "exact") -> str:
    with pytest.raises(ConfigError) as caught:
        read_task_sets(names, match=match, limit=None)
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize("skill", TASK_SKILLS)
def test_every_shipped_task_file_is_read_by_its_name(skill: str) -> None:
    (read,) = read_task_sets([skill], match="exact", limit=None)
    assert len(read.tasks) == read.in_file > 0
    assert all(task.messages and task.expected for task in read.tasks)


def test_prompt_and_messages_lines_may_be_mixed_and_blank_lines_and_other_keys_do_not_matter(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "hé?"}]
    name = write(
        tmp_path, {"prompt": "a", "expected": "b", "source": 7}, "", {"messages": chat, "prompt": "x", "expected": "c"}
    )
    (read,) = read_task_sets([name], match="exact", limit=None)
    assert [(t.line, t.prompt, t.messages, t.expected, t.question) for t in read.tasks] == [
        (1, "a", None, "b", "a"),
        (3, "x", tuple(chat), "c", "hé?"),
    ]


def test_a_limit_takes_the_first_of_each_file_and_keeps_the_whole_number(tmp_path: Path) -> None:
    names = [write(tmp_path, *[{"prompt": str(i), "expected": ""}] * n, name=f"{n}") for i, n in enumerate((3, 1))]
    assert [(len(s.tasks), s.in_file) for s in read_task_sets(names, match="exact", limit=2)] == [(2, 3), (1, 1)]


FAULTS: dict[str, tuple[str, str]] = {
    "not JSON": ("{", "not JSON"),
    "twice": ('{"prompt": "a", "prompt": "b", "expected": "c"}', "occurs twice"),
    "too deep": ("[" * 100_000, "nested too deeply"),
    "not an object": ("[1]", "expected a JSON object, got a list"),
    "no expected": ('{"prompt": "a"}', "expected must be a text, got nothing"),
    "mistyped": ('{"prompt": "a", "expectd": "b"}', "there is 'expectd'"),
    "number": ('{"prompt": "a", "expected": 4}', "expected must be a text, got a number"),
    "no question": ('{"expected": "b"}', "neither messages nor prompt"),
    "mistyped question": ('{"promt": "a", "expected": "b"}', "there is 'promt'"),
    "empty prompt": ('{"prompt": "", "expected": "b"}', "prompt must be a text of at least one character"),
    "no message": ('{"messages": [], "expected": "b"}', "at least one message, got an empty list"),
    "message": ('{"messages": ["hi"], "expected": "b"}', "message 0 must be an object, got a text"),
    "no role": ('{"messages": [{"content": "x"}], "expected": "b"}', "message 0: role must be a text, got nothing"),
    "parts": (
        '{"messages": [{"role": "user", "content": [1]}], "expected": "b"}',
        "content must be a text, got a list",
    ),
}


@pytest.mark.parametrize(("line", "says"), FAULTS.values(), ids=FAULTS.keys())
def test_a_bad_line_is_named_with_its_number(tmp_path: Path, line: str, says: str) -> None:
    text = problems_of(write(tmp_path, {"prompt": "a", "expected": "b"}, line))
    assert says in text
    assert "t.jsonl:2: " in text


def test_bytes_that_are_no_text_are_named_with_their_place(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"prompt": "a", "expected": "b"}\n{"prompt": "\xff"}\n')
    assert "t.jsonl:2: not UTF-8 at byte 12" in problems_of(str(path))


def test_all_faults_of_all_files_are_in_one_report(tmp_path: Path) -> None:
    first = write(tmp_path, "{", {"prompt": "a", "expected": 1}, name="one")
    text = problems_of(first, write(tmp_path, name="empty"), "nowhere.jsonl", first)
    for words in ("one:1: not JSON", "one:2: expected must", "empty: holds no task", "none of the shipped", "twice"):
        assert words in text
    assert text.count("one:1:") == 1
    assert "additions" in text


def test_a_long_list_of_faults_is_cut_and_counted(tmp_path: Path) -> None:
    text = problems_of(write(tmp_path, *["{"] * 50))
    assert "and 30 more" in text
    assert text.count("not JSON") == 20


def test_a_folder_is_no_task_file(tmp_path: Path) -> None:
    assert "cannot be read" in problems_of(str(tmp_path))


def test_an_expected_text_that_can_decide_nothing_is_refused(tmp_path: Path) -> None:
    assert "not a regular expression" in problems_of(write(tmp_path, {"prompt": "a", "expected": "("}), match="regex")
    assert "every answer contains" in problems_of(write(tmp_path, {"prompt": "a", "expected": " "}), match="contains")


RIGHT = [
    ("exact", " 4\n", "4", True),
    ("exact", "It is 4", "4", False),
    ("exact", "", "", True),
    ("contains", "It is 4.", " 4 ", True),
    ("contains", "It is five.", "4", False),
    ("regex", "It is 42.", r"\b4\d\b", True),
    ("regex", "It is 4.", r"^4", False),
]


@pytest.mark.parametrize(("match", "answer", "expected", "right"), RIGHT)
def test_when_an_answer_is_right(match: str, answer: str, expected: str, right: bool) -> None:
    assert is_right(match, answer, expected) is right


@given(st.text(min_size=1).filter(str.strip), st.sampled_from(["", " ", "\n\t"]))
def test_an_answer_equal_to_what_is_expected_is_right_whatever_white_space_surrounds_it(text: str, space: str) -> None:
    assert all(is_right(match, space + text + space, text) for match in MATCHES if match != "regex")
