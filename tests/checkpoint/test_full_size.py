"""Real sizes: a full DeepSeek-V3 as sparse files, V4 and V4.1 from their tables, and the checkpoint shipped here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.checkpoint.toy import Tensor, Toy, full_size_v3, write_sparse

from seekserve.checkpoint import Severity, read_checkpoint, verify
from seekserve.checkpoint.config import parse_config
from seekserve.checkpoint.findings import Collector
from seekserve.checkpoint.layout import expected_tensors, layout

CONFIGS = Path(__file__).parent / "configs"


def test_a_full_size_v3_is_read_and_clean(tmp_path: Path) -> None:
    toy = full_size_v3(json.loads((CONFIGS / "deepseek-v3.json").read_text(encoding="utf-8")))
    facts = read_checkpoint(write_sparse(toy, tmp_path))
    verify(facts)
    assert (len(facts.files), len(facts.tensors)) == (163, 91_991)
    assert (facts.precision, facts.precision_declared, facts.mtp_layers) == ("fp8_block", "fp8_block", 1)
    assert facts.parameters.main / 1e9 == pytest.approx(671.03, abs=0.01)
    assert 688e9 < facts.weights_bytes < 689e9
    assert [f.code for f in facts.findings if f.severity is Severity.WARNING] == ["tokenizer-missing"]


def v4_release(file: str, layers: int) -> Toy:
    """Names and shapes from the layout (held against published totals elsewhere), dtypes and scales as released."""
    config = json.loads((CONFIGS / f"{file}.json").read_text(encoding="utf-8"))
    text = config.get("text_config", config)
    text.update(num_hidden_layers=layers, n_routed_experts=4, num_nextn_predict_layers=1)
    if "engram_layer_ids" in text:
        text.update(dspark_n_routed_experts=4, kv_source_layer_ids=[2], index_source_layer_ids=[2])
        text.update(engram_layer_ids=[1], engram_num_embeddings=[1000])
    parsed = parse_config(config, "config.json", Collector())
    assert parsed is not None
    rows, columns = config["quantization_config"]["weight_block_size"]
    toy = Toy(config=config, tensors={}, shards=3)
    for name, wanted in expected_tensors(layout(parsed, config["model_type"])).items():
        shape, scale = wanted.shape, f"{name.removesuffix('weight')}scale"
        if not wanted.row.is_projection:
            toy.tensors[name] = Tensor("I64" if name.endswith("tid2eid") else "BF16", shape)
        elif ".experts." in name and "shared" not in name:
            toy.tensors[name] = Tensor("I8", (shape[0], shape[1] // 2))
            toy.tensors[scale] = Tensor("F8_E8M0", (shape[0], -(-shape[1] // 32)))
        else:
            toy.tensors[name] = Tensor("F8_E4M3", shape)
            high = shape[0] if wanted.row.scale == "row" else -(-shape[0] // rows)
            toy.tensors[scale] = Tensor("F8_E8M0", (high, -(-shape[1] // columns)))
    return toy


@pytest.mark.parametrize(
    ("file", "family"),
    [
        ("deepseek-v4-flash", "deepseek_v4_flash"),
        ("deepseek-v4-pro", "deepseek_v4_pro"),
        ("deepseek-v4.1-flash", "deepseek_v4_1"),
    ],
)
def test_v4_in_its_own_names_with_mxfp4_experts_is_clean(tmp_path: Path, file: str, family: str) -> None:
    facts = read_checkpoint(write_sparse(v4_release(file, layers=4), tmp_path))
    assert [str(f) for f in facts.errors] == []
    assert facts.family == family
    assert facts.precision == facts.precision_declared == "fp8_block+mxfp4"
    warnings = {f.code for f in facts.findings if f.severity is Severity.WARNING}
    assert warnings <= {"tokenizer-missing", "eos-missing"}


def test_v4_under_the_prefix_of_other_families_is_read_too(tmp_path: Path) -> None:
    toy = v4_release("deepseek-v4-flash", layers=3)
    toy.tensors = {f"model.{name}": tensor for name, tensor in toy.tensors.items()}
    facts = read_checkpoint(write_sparse(toy, tmp_path))
    assert facts.errors == ()
    assert "layers.0.attn.wq_a.weight" in facts.tensors


def test_the_shipped_checkpoint_is_clean(repository_root: Path) -> None:
    facts = read_checkpoint(repository_root / "build" / "seekserve" / "data" / "tiny_deepseek_v3")
    assert [str(f) for f in facts.findings if f.severity is not Severity.NOTE] == []
    assert (facts.family, facts.precision, facts.precision_declared) == ("deepseek_v3", "fp8_block", "fp8_block")
    pairs = [(n, f"{n}_scale_inv") for n in facts.tensors if f"{n}_scale_inv" in facts.tensors]
    assert any(facts.tensors[weight].file != facts.tensors[scale].file for weight, scale in pairs)
