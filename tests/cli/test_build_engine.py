"""`seekserve build-engine` from outside: exit codes, both streams, and what is on disk afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.checkpoint.toy import qwen_toy

from seekserve.cli import main
from seekserve.data import tiny_checkpoint_folder
from seekserve.plan.target import ALL_FIELDS

CHECKPOINT = str(tiny_checkpoint_folder())
Streams = pytest.CaptureFixture[str]


def run(*args: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(["build-engine", *args])
    return int(caught.value.code or 0)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for spec in ALL_FIELDS:
        monkeypatch.delenv(spec.variable, raising=False)
    return tmp_path


@pytest.fixture
def distill(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A few KB in the shape of a Distill, which GPUs can be planned for."""
    toy = qwen_toy()
    assert toy.tokenizer is not None
    toy.tokenizer["decoder"] = {"type": "ByteLevel"}
    toy.tokenizer_config = {"eos_token": "<eos>", "chat_template": "{{ messages }}<｜User｜>"}
    return str(toy.write(tmp_path_factory.mktemp("checkpoints") / "small"))


ON_GPU = ("--gpu", "h200", "--gpus", "1", "--max-seq-len", "256")


def test_a_build_says_what_it_made_and_what_comes_next(here: Path, capsys: Streams) -> None:
    assert run(CHECKPOINT, "--out", "bundle", "--name", "tiny") == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"built bundle tiny at {here / 'bundle'}\n")
    assert out.endswith(f"next: seekserve render {here / 'bundle'} --out REPO\n")
    assert err == ""
    assert (here / "bundle" / "bundle.json").is_file()


@pytest.mark.usefixtures("here")
def test_json_is_the_whole_of_stdout(capsys: Streams) -> None:
    assert run(CHECKPOINT, "--out", "bundle", "--json", "--max-seq-len", "512") == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["status"], data["limits"]["max_seq_len_tokens"]) == ("built", 512)
    assert data["sources"]["limits.max_seq_len_tokens"] == "flag --max-seq-len"


@pytest.mark.usefixtures("here")
def test_the_environment_is_read(capsys: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEKSERVE_MAX_BATCH_SIZE", "3")
    assert run(CHECKPOINT, "--out", "bundle", "--json", "--dry-run") == 0
    assert (
        json.loads(capsys.readouterr().out)["sources"]["limits.max_batch_size"]
        == "environment SEEKSERVE_MAX_BATCH_SIZE"
    )


def test_a_file_of_choices_in_the_folder_is_used_and_mentioned(here: Path, capsys: Streams) -> None:
    text = f"checkpoint: {CHECKPOINT}\nname: from-file\npaths: {{bundle: b}}\nlimits: {{max_batch_size: 2}}\n"
    (here / "seekserve.yaml").write_text(text, encoding="utf-8")
    assert run("--max-batch-size", "5", "--json") == 0
    out, err = capsys.readouterr()
    data = json.loads(out)
    assert err == f"using {here / 'seekserve.yaml'}\n"
    assert (data["bundle"], data["name"], data["limits"]["max_batch_size"]) == (str(here / "b"), "from-file", 5)


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        ((), 2, "which checkpoint?"),
        ((CHECKPOINT,), 2, "where to?"),
        (("nowhere", "--out", "b"), 2, "nowhere: no such folder"),
        ((CHECKPOINT, "--out", "b", "--max-batch-size", "0"), 2, "must be at least 1, got 0"),
        ((CHECKPOINT, "--out", "b", "--max-batch-size", "many"), 2, "not a valid integer"),
        ((CHECKPOINT, "--out", "b", "--kv-dtype", "int4"), 2, "--kv-dtype"),
        ((CHECKPOINT, "--out", "b", "--engine", "synthetic"), 2, "not for synthetic"),
        ((CHECKPOINT, "--out", "b", "--engine", "trtllm-pytorch"), 2, "which GPU?"),
        ((CHECKPOINT, "--out", "b", "--gpu", "nothing-like-it"), 2, "no GPU 'nothing-like-it' in the catalogue"),
        ((CHECKPOINT, "--out", "b", "--gpu", "h200", "--engine", "trtllm-engine"), 3, "use --engine trtllm-pytorch"),
        ((CHECKPOINT, "--out", "b", "--tp", "2"), 2, "flag --tp is for engines on GPUs"),
        ((CHECKPOINT, "--out", "b", "--set", "stream_interval=2"), 2, "--set is for"),
        ((CHECKPOINT, "--out", "b", "--name", "../x"), 2, "is no model name"),
        ((CHECKPOINT, "--out", "b", "--config", "none.yaml"), 2, "--config: no such file"),
        ((CHECKPOINT, "--out", "b", "--max-seq-len", "99999"), 3, "above the model's max_position_embeddings 4096"),
        ((CHECKPOINT, "--out", "b", "--kv-capacity-tokens", "64"), 3, "--kv-capacity-tokens 2048 or more"),
        ((CHECKPOINT, "--out", "."), 3, "is no bundle"),
    ],
)
def test_what_is_wrong_is_said_on_stderr_and_nothing_is_written(
    here: Path, capsys: Streams, args: tuple[str, ...], code: int, text: str
) -> None:
    assert run(*args) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert text in err
    assert list(here.iterdir()) == []


def test_a_dry_run_for_gpus_prints_the_arguments_and_writes_nothing(here: Path, distill: str, capsys: Streams) -> None:
    assert run(distill, "--out", "b", *ON_GPU, "--set", "stream_interval=3", "--no-cuda-graphs", "--dry-run") == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"would build bundle small at {here / 'b'}\n")
    for text in ("trtllm-pytorch (1.2.1)", "  llm_args.yaml\n", "    stream_interval: 3\n", "flag --set", "needs:\n"):
        assert text in out
    assert err == ""
    assert list(here.iterdir()) == []


def test_a_bundle_for_gpus_is_built_whole(here: Path, distill: str, capsys: Streams) -> None:
    assert run(distill, "--out", "b", *ON_GPU, "--variant", "bf16", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["status"], data["engine"], data["weights"]["linked"]) == ("built", "trtllm-pytorch", True)
    assert data["name"] == "small-bf16"
    assert (here / "b" / "llm_args.yaml").read_text(encoding="utf-8") == data["texts"]["llm_args.yaml"]


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (("--set", "nonsense"), 2, "--set: 'nonsense' is not of the form path=value"),
        (("--extra-args", "no.yaml"), 2, "no.yaml"),
        (("--workers", "2"), 2, "--workers is for trtllm-engine"),
        (("--build-flag", "gemm_plugin=auto"), 2, "--build-flag is for trtllm-engine"),
        (("--quantize", "fp8_tensor"), 2, "--quantize is for trtllm-engine"),
        (("--profile", "latency"), 2, "no guide has latency settings"),
        (("--set", "tensor_parallel_size=2"), 3, "change it with --tp"),
        (("--topology", "none.txt"), 2, "--topology: cannot read none.txt"),
        (("--retain-prompt-priority", "200"), 2, "from 0 to 100"),
    ],
)
def test_what_is_wrong_for_gpus_is_said_and_nothing_is_written(
    here: Path, distill: str, capsys: Streams, args: tuple[str, ...], code: int, text: str
) -> None:
    assert run(distill, "--out", "b", *ON_GPU, *args) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert text in err
    assert list(here.iterdir()) == []


def test_the_words_of_the_flags_are_those_of_the_code() -> None:
    from seekserve.cli.build_engine import PRESETS, PROFILES, QUANTIZE
    from seekserve.plan import curated, presets
    from seekserve.plan.quantised import QUANTISED_WEIGHTS

    assert set(PROFILES) == set(curated.PROFILES)
    assert set(PRESETS) == set(presets.preset_names())
    assert set(QUANTIZE) == set(QUANTISED_WEIGHTS)


def test_the_flags_are_those_of_the_table(capsys: Streams) -> None:
    assert run("--help") == 0
    text = capsys.readouterr().out
    own = ("--out", "--weights", "--config", "--force", "--dry-run", "--json", "--variant", "--set", "--extra-args")
    for flag in (*own, *(spec.flag for spec in ALL_FIELDS)):
        assert flag in text
