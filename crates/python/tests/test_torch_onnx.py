"""Models as files of ONNX operators: onnxruntime gives the model's numbers, and what ONNX does not have is named."""

import sys

import pytest
import torch
from torch import nn

import gradewise
from family_cases import disturb, drawn, ours
from family_list import BY_NAME
from gradewise.torch import _small_linalg, export, flash
from test_torch_export import F64, LAYERS, TRANSFORMERS, Inside, distance, transformer


@pytest.fixture(scope="module")
def runtime():
    """onnxruntime, where it and the packages that write its files are installed."""
    for package in ("onnx", "onnxscript"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    return pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")


def need_same_in_onnx(runtime, path, model, example, others, **options):
    export.onnx(model, example, path, **options)
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for given in (example, *others):
        tensors = [x for x in torch.utils._pytree.tree_leaves(given) if isinstance(x, torch.Tensor)]
        with torch.no_grad():
            expected = model(**given) if isinstance(given, dict) else model(*given)
        feed = {i.name: x.numpy() for i, x in zip(session.get_inputs(), tensors, strict=True)}
        found = [torch.from_numpy(y) for y in session.run(None, feed)]
        assert distance(found, [expected] if isinstance(expected, torch.Tensor) else expected) <= 1e-5


@pytest.mark.parametrize("layer", LAYERS)
def test_layers_in_onnx(layer, runtime, tmp_path):
    model, shape, axis = LAYERS[layer](torch.float32)
    some, other = (
        (torch.randn([rows if n is None else n for n in (shape if axis else (rows, *shape))]),) for rows in (3, 7)
    )
    need_same_in_onnx(runtime, tmp_path / "model.onnx", model, some, [other], batch=axis)


@pytest.mark.parametrize("kind", ["LGATr", "LGATrSlim"])
def test_transformers_in_onnx(kind, runtime, tmp_path):
    model, shapes = transformer(kind, torch.float32), TRANSFORMERS[kind]
    some, other = ({k: torch.randn(batch, *s) for k, s in shapes.items()} for batch in (2, 5))
    need_same_in_onnx(runtime, tmp_path / "model.onnx", model, some, [other], batch=0)


@pytest.mark.parametrize("name", ["spectral_2d", "g3_norm", "pga_linear", "batch_norm_2d_eval", "group_norm_3d"])
def test_layers_for_fields_in_onnx(name, runtime, tmp_path):
    inputs, _ = drawn(BY_NAME[name])
    model = disturb(ours(BY_NAME[name]).eval())
    (x,) = (x.float() for x in inputs.values())
    some, other = (torch.cat([x, x + 0.3]),), (torch.cat([x, 0.1 * x, x - 0.7]),)
    need_same_in_onnx(runtime, tmp_path / "model.onnx", model, some, [other], batch=0)


class Spectrum(nn.Module):
    def forward(self, x):
        return torch.linalg.svdvals(x)


def test_what_onnx_does_not_have_is_named(runtime, tmp_path):
    text = r"parts\.1 \(Spectrum\) computes aten\.linalg_svdvals\.default, which ONNX has no operator for"
    with pytest.raises(gradewise.ArgumentError, match=text):
        export.onnx(Inside(Spectrum()), torch.randn(3, 3, 8), tmp_path / "model.onnx")


def test_onnx_tells_which_packages_it_needs(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(gradewise.MissingPackageError, match="pip install onnx onnxscript"):
        export.onnx(flash.Layer(4, 3), torch.randn(8, 3, 4), tmp_path / "model.onnx")


def test_linear_algebra_of_small_matrices():
    """What stands in its place where a program has none, against PyTorch's."""
    rows = torch.randn(4, 5, 5, dtype=F64, generator=torch.Generator().manual_seed(0))
    positive = rows @ rows.mT + torch.eye(5, dtype=F64)
    for upper in (False, True):
        factor = _small_linalg.cholesky(positive, upper=upper)
        assert distance(factor, torch.linalg.cholesky(positive, upper=upper)) < 1e-13
        for left in (False, True):
            for unit in (False, True):
                options = {"upper": upper, "left": left, "unitriangular": unit}
                right = rows[..., :3] if left else rows[..., :3, :]
                expected = torch.linalg.solve_triangular(factor, right, **options)
                assert distance(_small_linalg.solve_triangular(factor, right, **options), expected) < 1e-11
    with pytest.raises(gradewise.ArgumentError, match="matrices with 17 rows"):
        _small_linalg.cholesky(torch.eye(17))
