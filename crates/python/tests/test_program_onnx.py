"""`gradewise export --to onnx`: a runtime gives the numbers of the program in C, for batches of any size."""

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import gradewise as gw
from gradewise._program import launcher

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
COMPILER = os.environ.get("CC", "cc")
FEW = "data.train=24 data.valid=8 data.test=8 train.batch_size=6 train.steps=4 train.eval_every=0 runtime.threads=1"
# GRADEWISE_PROGRAM names another program than the package's.
PROGRAM = os.environ.get("GRADEWISE_PROGRAM", "").split() or launcher()


def program(folder, words, status=0):
    environment = {**os.environ, "PYTHONPATH": str(Path(gw.__file__).parents[1])}
    done = subprocess.run([*PROGRAM, *words.split()], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def predicted(path, inputs):
    """By onnxruntime, or by the reference evaluator of onnx."""
    try:
        import onnxruntime
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        return ReferenceEvaluator(str(path)).run(None, inputs)[0]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, inputs)[0]


def in_c(folder, name, count, inputs):
    """The results of each sample, by the machine's compiler."""
    library = folder / f"{name}.so"
    subprocess.run(
        [COMPILER, "-O2", "-shared", "-fPIC", str(folder / f"{name}.c"), "-o", str(library), "-lm"], check=True
    )
    predict = getattr(ctypes.CDLL(str(library)), f"{name}_predict")
    pointer = lambda x: x.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    results = []
    for sample in zip(*inputs.values()):
        result = np.full(count, np.nan, np.float32)
        # The caller's memory, where the program needs more than the stack has.
        work = np.empty(1 << 20, np.float32)
        given = [ctypes.c_int(int(x)) if x.ndim == 0 else pointer(np.ascontiguousarray(x)) for x in sample]
        predict(*given, pointer(result), pointer(work))
        results.append(result)
    return np.stack(results)


@pytest.mark.skipif(not shutil.which(COMPILER), reason=f"there is no {COMPILER}")
@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("volumes", "model.hidden=6 model.layers=2"),
        ("nbody", "model.hidden=4 model.layers=1 data.source=simulate"),
        ("lorentz", "--preset trigger"),
    ],
)
def test_onnx_gives_the_numbers_of_c(tmp_path, task, settings):
    program(tmp_path, f"train {task} {settings} {FEW} --out run")
    for language in ("c", "onnx"):
        said = program(tmp_path, f"export run --to {language} --out {task}.{language}")
        assert f"{task}.{language}: " in said
    path = tmp_path / f"{task}.onnx"
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert [(one.domain, one.version) for one in model.opset_import] == [
        ("", 18)
    ] and model.producer_name == "gradewise"
    assert f"Task {task}" in model.doc_string and "SHA-256" in model.doc_string
    rng, inputs = np.random.default_rng(0), {}
    for value in model.graph.input:
        first, *sizes = value.type.tensor_type.shape.dim
        assert first.dim_param == "batch" and value.doc_string
        shape = (5, *(size.dim_value for size in sizes))
        inputs[value.name] = rng.standard_normal(shape).astype(np.float32)
        if value.type.tensor_type.elem_type == onnx.TensorProto.INT64:
            # How many of the particles are there: all, some, and one.
            inputs[value.name] = np.array([16, 7, 1, 2, 15])
        elif task == "lorentz":
            # Momenta of particles, which are longer in time than in space.
            inputs[value.name][..., 0] = 1 + np.linalg.norm(inputs[value.name][..., 1:], axis=-1)
    _, *sizes = model.graph.output[0].type.tensor_type.shape.dim
    expected = in_c(tmp_path, task, int(np.prod([size.dim_value for size in sizes])), inputs)
    found = predicted(path, inputs)
    assert np.isfinite(expected).all() and np.abs(expected).max() > 0
    difference = np.abs(found.reshape(expected.shape) - expected).max()
    assert difference <= 1e-5 * np.abs(expected).max(), difference
    # One sample alone. (onnxruntime itself ends on batches of none.)
    alone = predicted(path, {name: x[1:2] for name, x in inputs.items()})
    assert np.abs(alone - found[1:2]).max() <= 1e-6 * np.abs(expected).max()


def test_refusals(tmp_path):
    program(tmp_path, f"train volumes model.hidden=2 model.layers=1 {FEW} --out run")
    assert "--to onnx asks for --out" in program(tmp_path, "export run --to onnx", 2)
    assert "--to onnx takes one run" in program(tmp_path, "export run run --to onnx --out a.onnx", 2)
    assert "f32 and f64" in program(tmp_path, "export run --to onnx --out a.onnx --dtype bf16", 2)
    assert "for --to c and --to onnx" in program(tmp_path, "export run --to cgenn --out a --name tagger", 2)
    (tmp_path / "mine.onnx").write_bytes(b"something else")
    program(tmp_path, "export run --to onnx --out mine.onnx", 2)
    assert (tmp_path / "mine.onnx").read_bytes() == b"something else"
    # An earlier export is replaced, by the same bytes.
    program(tmp_path, "export run --to onnx --out a.onnx")
    first = (tmp_path / "a.onnx").read_bytes()
    program(tmp_path, "export run --to onnx --out a.onnx")
    assert (tmp_path / "a.onnx").read_bytes() == first
