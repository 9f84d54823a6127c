"""Every kernel equals the formula bit by bit; the reference here is written out block by block on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from seekserve.convert.formula import dequantise_exactly, quantise_exactly, spread  # noqa: E402
from seekserve.convert.kernel import Dequantiser, TorchQuantiser  # noqa: E402
from seekserve.convert.native import NativeQuantiser, load_library  # noqa: E402

pytestmark = pytest.mark.needs_local
Matrix = Any


def reference(weight: Matrix) -> tuple[Matrix, Matrix]:
    rows, columns = weight.shape
    codes = torch.empty(rows, columns, dtype=torch.uint8)
    scales = torch.empty(-(-rows // 128), -(-columns // 128))
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            part = (slice(128 * i, 128 * i + 128), slice(128 * j, 128 * j + 128))
            block = weight[part].float()
            scale = block.abs().max() / 448
            scale = torch.tensor(1.0) if scale == 0 else scale
            scales[i, j] = scale
            codes[part] = (block / scale).clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)
    return codes, scales


def native() -> NativeQuantiser:
    library = load_library()
    if library is None:
        pytest.skip("no C compiler")
    return NativeQuantiser(library)


KERNELS: dict[str, Callable[[], Any]] = {"torch": TorchQuantiser, "native": native}


def run(kernel: Any, weight: Matrix) -> tuple[Matrix, Matrix]:
    rows, columns = weight.shape
    codes = torch.zeros(rows, columns, dtype=torch.uint8)
    scales = torch.zeros(-(-rows // 128), -(-columns // 128))
    kernel(weight.contiguous(), codes, scales)
    return codes, scales


def assert_same(found: tuple[Matrix, Matrix], right: tuple[Matrix, Matrix]) -> None:
    assert torch.equal(found[1], right[1])
    assert torch.equal(found[0], right[0])


@st.composite
def matrices(draw: st.DrawFn) -> Matrix:
    """Blocks of every kind side by side: ordinary, wide range, subnormal, huge, zero, one value, powers of two."""
    rows, columns = draw(st.integers(1, 300)), draw(st.integers(1, 300))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    weight = torch.randn(rows, columns, generator=generator)
    dtype = draw(st.sampled_from([torch.bfloat16, torch.bfloat16, torch.float16, torch.float32]))
    for i in range(0, rows, 128):
        for j in range(0, columns, 128):
            block = weight[i : i + 128, j : j + 128]
            kind = draw(st.sampled_from(["plain", "range", "subnormal", "tiny", "huge", "zero", "same", "powers"]))
            if kind == "plain":
                block *= 0.02
            elif kind == "range":
                block *= torch.exp2(torch.randint(-30, 3, block.shape, generator=generator).float())
            elif kind == "subnormal":
                block *= 3e-41
            elif kind == "tiny":
                block *= 1e-44
            elif kind == "huge":
                block.clamp_(-3, 3).mul_(6e4 / 3 if dtype == torch.float16 else 1e38)
            elif kind == "zero":
                block.zero_()
            elif kind == "same":
                block.fill_(draw(st.sampled_from([448.0, -1.0, 0.007, 2.0**-100])))
            else:
                block.copy_(torch.exp2(torch.randint(-20, 1, block.shape, generator=generator).float()) * 448)
    return weight.to(dtype)


@pytest.mark.parametrize("name", KERNELS)
@given(weight=matrices())
@settings(max_examples=40, deadline=None)
def test_a_kernel_equals_the_reference_on_blocks_of_every_kind(name: str, weight: Matrix) -> None:
    assert_same(run(KERNELS[name](), weight), reference(weight))


@given(weight=matrices())
@settings(max_examples=25, deadline=None)
def test_the_formula_equals_the_reference(weight: Matrix) -> None:
    assert_same(quantise_exactly(weight), reference(weight))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("scale", [1.0, 0.37, 2.0**-120, 1.7e38])
def test_every_finite_bfloat16_is_rounded_alike(name: str, scale: float) -> None:
    magnitudes = torch.arange(0x7F80, dtype=torch.int32)
    every = torch.cat([magnitudes, magnitudes + 0x8000]).to(torch.int16).view(torch.bfloat16)
    # sorted, a block spans a binade; with a large value in front it spans them all
    for weight in (every.view(-1, 256), torch.cat([torch.full((256,), scale), every]).to(torch.bfloat16).view(-1, 128)):
        assert_same(run(KERNELS[name](), weight), reference(weight))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("shape", [(1, 1), (128, 128), (127, 129), (576, 130), (3, 140_000), (257, 1)])
def test_edge_blocks_are_scaled_by_their_own_values_only(name: str, shape: tuple[int, int]) -> None:
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    assert_same(run(KERNELS[name](), weight), reference(weight))


@pytest.mark.parametrize("name", KERNELS)
def test_a_block_of_zeros_has_scale_one_and_keeps_its_signs(name: str) -> None:
    weight = torch.zeros(128, 256, dtype=torch.bfloat16)
    weight[:, 5] = -0.0
    codes, scales = run(KERNELS[name](), weight)
    assert scales.tolist() == [[1.0, 1.0]]
    assert codes[:, 5].unique().tolist() == [0x80]
    assert codes[:, :5].unique().tolist() == [0]


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_a_bad_value_makes_the_scale_of_its_block_not_finite(name: str, bad: float, dtype: str) -> None:
    weight = torch.ones(130, 260, dtype=getattr(torch, dtype))
    weight[129, 200] = bad
    _, scales = run(KERNELS[name](), weight)
    assert torch.isfinite(scales).tolist() == [[True, True, True], [True, False, True]]


def scale_factors(kind: str, rows: int, columns: int, generator: Any) -> Matrix:
    shape = {"tensor": (1, 1), "channel": (rows, 1), "block": (1, columns)}[kind]
    return torch.rand(shape, generator=generator) + 0.01


@pytest.mark.parametrize("kind", ["tensor", "channel", "block"])
@pytest.mark.parametrize("factor", [1.0, 1e-30, 1e-42, 5e35])
def test_dequantising_equals_one_rounding_of_the_product(kind: str, factor: float) -> None:
    generator = torch.Generator().manual_seed(2)
    codes = torch.arange(256, dtype=torch.uint8)[(torch.arange(256) & 0x7F) != 0x7F].repeat(130, 5)
    scales = scale_factors(kind, *codes.shape, generator) * factor
    out = torch.empty(codes.shape, dtype=torch.bfloat16)
    assert Dequantiser()(codes, scales, out)
    right = (codes.view(torch.float8_e4m3fn).float() * scales).to(torch.bfloat16)
    assert torch.equal(out.view(torch.int16), right.view(torch.int16))


@pytest.mark.parametrize(
    ("code", "scale"), [(0x7F, 1.0), (0xFF, 1.0), (1, float("nan")), (0, float("inf")), (0x7E, 1e38)]
)
def test_what_is_not_finite_after_dequantising_is_told(code: int, scale: float) -> None:
    codes = torch.zeros(4, 8, dtype=torch.uint8)
    codes[3, 7] = code
    assert not Dequantiser()(codes, torch.full((1, 1), scale), torch.empty(4, 8, dtype=torch.bfloat16))


def test_a_round_trip_is_within_half_a_step_of_e4m3() -> None:
    weight = torch.randn(256, 256, generator=torch.Generator().manual_seed(3)).to(torch.bfloat16)
    codes, scales = quantise_exactly(weight)
    back = dequantise_exactly(codes, spread(scales, 256, 256))
    step = torch.maximum(weight.float().abs() * 2.0**-4, spread(scales, 256, 256) * 2.0**-10)
    assert bool(((back - weight.float()).abs() <= step * 1.001).all())
