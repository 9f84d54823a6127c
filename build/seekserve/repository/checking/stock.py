"""The stock TensorRT-LLM models of Triton: parameters, engine files, tokenizers, and the llmapi model's arguments.

Which stock model a folder holds is told by what only that model has, since everything can be renamed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from seekserve.errors import BundleError, ConfigError
from seekserve.plan.yaml_file import read_yaml
from seekserve.trtllm import (
    ArgFinding,
    known_versions,
    resolve_version,
    validate_llm_args,
    validate_pbtxt_parameters,
)
from seekserve.trtllm.built_engine import missing_engines, read_engine_config

from .finding import RepositoryFinding, error, warning
from .model import ModelFolder

__all__ = ["stock_findings", "stock_kind"]

LLMAPI_FILE = "model.yaml"
_OURS_IN_YAML = ("triton_config", "logits_post_processors")
"""Keys of model.yaml that are not handed to tensorrt_llm.LLM."""


def stock_kind(model: ModelFolder) -> str | None:
    """`tensorrt_llm`, `preprocessing`, `postprocessing`, `tensorrt_llm_bls`, `llmapi`, or None for any other model."""
    inputs, parameters = model.tensor_names("input"), model.parameters
    if model.config.backend == "tensorrtllm" or "gpt_model_path" in parameters:
        return "tensorrt_llm"
    if model.config.backend != "python":
        return None
    if {"QUERY", "REQUEST_OUTPUT_LEN"} <= inputs:
        return "preprocessing"
    if {"TOKENS_BATCH", "SEQUENCE_LENGTH"} <= inputs:
        return "postprocessing"
    if "tensorrt_llm_model_name" in parameters:
        return "tensorrt_llm_bls"
    return "llmapi" if any((version / LLMAPI_FILE).is_file() for version in model.versions) else None


def stock_findings(model: ModelFolder, *, version: str | None) -> Iterator[RepositoryFinding]:
    """`version`: the TensorRT-LLM of the image; None: that of the engine, else the newest that has the model."""
    kind = stock_kind(model)
    if kind == "llmapi":
        yield from _llmapi(model, version or known_versions()[0])
    elif kind is not None:
        yield from _parameters(model, kind, version or _engine_version(model) or known_versions()[0])
    if kind == "tensorrt_llm":
        yield from _engine(model)
    if kind in ("preprocessing", "postprocessing"):
        yield from _tokenizer(model)


def _parameters(model: ModelFolder, kind: str, version: str) -> Iterator[RepositoryFinding]:
    # What was not filled in has its own finding, and a name the template fills is no value to judge.
    parameters = {key: value for key, value in model.parameters.items() if "${" not in value}
    for found in validate_pbtxt_parameters(parameters, version, model=kind):
        if found.rule == "parameter-missing" and found.path in model.parameters:
            continue
        yield _converted(found, model.config_file, model.parameter_line(found.path))


def _converted(found: ArgFinding, file: str, line: int | None) -> RepositoryFinding:
    make = error if found.is_error else warning
    return make(found.rule, file, line, f"{found.path}: {found.message}", found.hint)


def _engine(model: ModelFolder) -> Iterator[RepositoryFinding]:
    for key in ("gpt_model_path", "encoder_model_path"):
        value = model.parameters.get(key, "")
        if not value or "${" in value:
            continue
        for problem in _engine_problems(Path(value)):
            yield error("engine", model.config_file, model.parameter_line(key), f"{key}: {problem}")
        if Path(value).resolve().parent == model.path.parent.resolve():
            message = f"{key} {value} stands in the repository, where Triton takes it for a model"
            yield error("engine-inside", model.config_file, model.parameter_line(key), message, "move it elsewhere")


def _engine_problems(folder: Path) -> list[str]:
    """What would stop TensorRT-LLM from opening an engine folder."""
    if not folder.is_absolute():
        return [f"{folder} is relative, and the server's working directory decides where that is"]
    if not folder.is_dir():
        return [f"{folder} is {'not a folder' if folder.exists() else 'not there'}"]
    try:
        return missing_engines(read_engine_config(folder))
    except BundleError as reason:
        return [reason.message]


def _engine_version(model: ModelFolder) -> str | None:
    """Of the engine that the model names, where it is one that we know; the stock models must be of the same."""
    try:
        facts = read_engine_config(Path(model.parameters.get("gpt_model_path", "")))
        return resolve_version(facts.version).version if facts.version else None
    except (BundleError, ConfigError, OSError):
        return None


def _tokenizer(model: ModelFolder) -> Iterator[RepositoryFinding]:
    value = model.parameters.get("tokenizer_dir", "")
    line = model.parameter_line("tokenizer_dir")
    if not value or "${" in value:
        return
    folder = Path(value)
    if not folder.is_dir():
        hint = "a hub name is looked up on the network at start-up; give a folder" if "/" in value else ""
        yield error("tokenizer", model.config_file, line, f"tokenizer_dir {value} is no folder here", hint)
        return
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "tokenizer_config.json")):
        yield error("tokenizer", model.config_file, line, f"tokenizer_dir {value} holds no tokenizer")
    if folder.resolve().parent == model.path.parent.resolve():
        message = f"tokenizer_dir {value} stands in the repository, where Triton takes it for a model"
        yield error("tokenizer-inside", model.config_file, line, message, "move it elsewhere")


def _llmapi(model: ModelFolder, version: str) -> Iterator[RepositoryFinding]:
    for folder in model.versions:
        path = folder / LLMAPI_FILE
        if not path.is_file():
            continue
        file = f"{model.name}/{folder.name}/{LLMAPI_FILE}"
        try:
            data = dict(read_yaml(path, setting=LLMAPI_FILE))
        except ConfigError as reason:
            yield error("model-yaml", file, None, reason.message)
            continue
        triton = data.get("triton_config") or {}
        args = {key: value for key, value in data.items() if key not in _OURS_IN_YAML and key != "model"}
        text = path.read_text(encoding="utf-8")
        for found in validate_llm_args(args, version, engine_kind="trtllm-pytorch"):
            yield _converted(found, file, _yaml_line(text, found.path))
        yield from _llmapi_model(data, file, text)
        yield from _triton_config(model, triton, file, text)


def _llmapi_model(data: Mapping[str, object], file: str, text: str) -> Iterator[RepositoryFinding]:
    target = data.get("model")
    if not isinstance(target, str) or not target:
        yield error("model-yaml", file, None, "has no model: which checkpoint shall be loaded?")
    elif target.startswith(("/", ".")) and not (Path(target) / "config.json").is_file():
        yield error("checkpoint", file, _yaml_line(text, "model"), f"model {target} holds no config.json here")
    elif not target.startswith("/"):
        message = f"model {target!r} is a hub name: it is looked up on the network by every node at start-up"
        yield warning("checkpoint", file, _yaml_line(text, "model"), message, "give a folder")
    if data.get("skip_tokenizer_init") is True:
        message = "skip_tokenizer_init is true, but the stock llmapi model tokenises"
        yield error("model-yaml", file, _yaml_line(text, "skip_tokenizer_init"), message)


def _triton_config(model: ModelFolder, triton: object, file: str, text: str) -> Iterator[RepositoryFinding]:
    if not isinstance(triton, Mapping):
        yield error("model-yaml", file, _yaml_line(text, "triton_config"), "triton_config is no mapping")
        return
    is_decoupled = triton.get("decoupled", False)
    if is_decoupled != model.is_decoupled:
        message = (
            f"triton_config.decoupled is {str(is_decoupled).lower()} and config.pbtxt says "
            f"{str(model.is_decoupled).lower()}: with --disable-auto-complete-config only the latter counts"
        )
        yield error("decoupled", file, _yaml_line(text, "decoupled"), message, "write the same in both")
    size = triton.get("max_batch_size", 0)
    if size != model.config.max_batch_size:
        message = f"triton_config.max_batch_size is {size}, config.pbtxt says {model.config.max_batch_size}"
        yield error("max-batch", file, _yaml_line(text, "max_batch_size"), message, "write the same in both: 0")


def _yaml_line(text: str, path: str) -> int | None:
    """Of the last key of a dotted path."""
    key = path.split(".")[-1].split("[")[0]
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip().startswith(f"{key}:"):
            return number
    return None
