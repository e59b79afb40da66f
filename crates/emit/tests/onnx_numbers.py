"""Runs the models of a folder on the numbers beside them, by onnxruntime, or by the reference evaluator of onnx.

Each N.bin holds two samples, one after the other: all inputs, then all results, in float64. list.txt says what each model is.
"""

import sys
from pathlib import Path

try:
    import numpy as np
    import onnx
except ImportError as error:
    print(f"{error}: pip install onnx onnxruntime")
    sys.exit(77)
try:
    import onnxruntime
except ImportError:
    onnxruntime = None
from onnx.reference import ReferenceEvaluator

NUMPY = {onnx.TensorProto.FLOAT: np.float32, onnx.TensorProto.DOUBLE: np.float64}
# The relative error that a type may have, of the largest number.
TOLERANCE = {np.float32: 1e-5, np.float64: 1e-12}
# The reference evaluator's Erf has seven digits.
TOLERANCE_OF_ERF = 1e-6


def evaluate(path, model, inputs):
    # onnxruntime has no Erf, Cos or Sin of double precision.
    is_double = any(value.dtype == np.float64 for value in inputs.values())
    if onnxruntime and not is_double:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return session.run(None, inputs)
    return ReferenceEvaluator(model).run(None, inputs)


def main(folder):
    names, failed, worst = (folder / "list.txt").read_text().splitlines(), [], {}
    for number, about in enumerate(names):
        path = folder / f"{number}.onnx"
        model = onnx.load(path)
        onnx.checker.check_model(model, full_check=True)
        assert [one.version for one in model.opset_import] == [18]
        shapes, types = {}, {}
        for value in [*model.graph.input, *model.graph.output]:
            tensor = value.type.tensor_type
            first, *sizes = tensor.shape.dim
            assert first.dim_param == "batch", about
            shapes[value.name] = [size.dim_value for size in sizes]
            types[value.name] = NUMPY[tensor.elem_type]
        samples = np.fromfile(folder / f"{number}.bin").reshape(2, -1)
        arrays, at = {}, 0
        for name, shape in shapes.items():
            count = int(np.prod(shape))
            arrays[name] = samples[:, at : at + count].reshape(2, *shape)
            at += count
        assert at == samples.shape[1], about
        inputs = {value.name: arrays[value.name].astype(types[value.name]) for value in model.graph.input}
        try:
            results = evaluate(path, model, inputs)
        except Exception as error:
            failed.append(f"{about}: {type(error).__name__}: {str(error)[:300]}")
            continue
        for value, found in zip(model.graph.output, results):
            kind, expected = types[value.name], arrays[value.name]
            largest = np.abs(expected).max()
            error = np.abs(found.astype(np.float64) - expected).max() / max(largest, 1e-2)
            worst[kind.__name__] = max(worst.get(kind.__name__, 0.0), error)
            has_erf = any(node.op_type == "Erf" for node in model.graph.node)
            tolerance = max(TOLERANCE[kind], TOLERANCE_OF_ERF * has_erf)
            if found.shape != expected.shape or not error <= tolerance:
                failed.append(f"{about}: shape {found.shape} of {expected.shape}, error {error:.1e}")
    print(f"{len(names)} models, {len(failed)} failed, largest errors {worst}")
    print(*failed[:40], sep="\n")
    return 1 if failed else 0


sys.exit(main(Path(sys.argv[1])))
