"""Models as programs without gradewise: by operators, layers and networks, in other programs, and what is refused."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import gradewise
import gradewise.torch as gt
import published
import transformer_cases
from family_cases import default_dtype, disturb, drawn, ours
from family_list import BY_NAME
from sweeps import sampled
from gradewise import _core
from gradewise._registry import OPERATORS
from gradewise.torch import cgenn, export, flash
from gradewise.torch._operators import apply

F64 = torch.float64
BOUNDS = {F64: 1e-12, torch.float32: 1e-5}
SPACE = (1.0, 1.0, 1.0)


def distance(found, expected):
    """The greatest difference, relative to the greatest number; of results that may be several tensors."""
    pairs = [[x] if isinstance(x, torch.Tensor) else [y for y in x if y is not None] for x in (found, expected)]
    sizes = []
    for a, b in zip(*pairs, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        a, b = a.detach(), b.detach()
        sizes.append(float((a - b).abs().max()) / max(float(b.abs().max()), 1e-300) if b.numel() else 0.0)
    return max(sizes)


def names(made):
    """The operators of a program, with those of programs within it."""
    modules = [m for m in made.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
    return {str(node.target) for m in modules for node in m.graph.nodes if node.op == "call_function"}


def need_same(model, example, others, bound, **options):
    """A program computes what the model does, for its example and for others."""
    made = export.program(model, example, **options)
    assert names(made) and not any("gradewise" in name for name in names(made))
    for given in (example, *others):
        with torch.no_grad():
            if isinstance(given, dict):
                assert distance(made.module()(**given), model(**given)) <= bound
            else:
                assert distance(made.module()(*given), model(*given)) <= bound
    return made


class Operator(nn.Module):
    """One operator with its parameters; features are arguments."""

    def __init__(self, name, attributes, parameters):
        super().__init__()
        self.name, self.attributes = name, attributes
        self.parameters_ = nn.ParameterList(parameters)

    def forward(self, *features):
        features, parameters = iter(features), iter(self.parameters_)
        rows = [o.has_rows for o in OPERATORS[self.name].operands]
        count = sum(1 for _ in self.parameters_) + self.features
        return apply(self.name, self.attributes, [next(features if r else parameters) for r in rows[:count]])


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_is_written_out(name):
    rows = [o.has_rows for o in OPERATORS[name].operands]
    for attributes, inputs in _core.samples(name, (2, 0, 1), 3, 2, 0):
        tensors = [torch.tensor(values, dtype=F64).reshape(shape) for shape, values in inputs]
        features = tuple(x for x, has in zip(tensors, rows) if has)
        model = Operator(name, attributes, [x for x, has in zip(tensors, rows) if not has])
        model.features = len(features)
        other = tuple(torch.cat([x, 2 * x, x - 0.3], dim=1) for x in features)
        need_same(model, features, [other], BOUNDS[F64], batch=1)


def cemlp(dtype):
    return disturb(cgenn.CEMLP(cgenn.CliffordAlgebra(SPACE), 3, 4, 2).to(dtype)), (3, 8), 0


def accelerated(dtype):
    model = disturb(published.CEMLP(published.CliffordAlgebra((-1.0, 1.0)), 3, 4, 2).to(dtype))
    assert gt.accelerate(model, verbose=False).replaced
    return model, (3, 4), 0


def fully_connected(dtype):
    layer = cgenn.FullyConnectedSteerableGeometricProductLayer(cgenn.CliffordAlgebra(SPACE), 3, 2)
    return disturb(layer.to(dtype)), (3, 8), 0


def flash_layer(dtype):
    return disturb(flash.Layer(4, (1, 3, 0)).to(dtype)), (16, None, 4), 1


LAYERS = {f.__name__: f for f in (cemlp, accelerated, fully_connected, flash_layer)}


@pytest.mark.parametrize("dtype", [F64, torch.float32], ids=["f64", "f32"])
@pytest.mark.parametrize("layer", LAYERS)
def test_layers(layer, dtype):
    model, shape, axis = LAYERS[layer](dtype)

    def drawn(rows):
        sizes = [rows if size is None else size for size in shape] if axis else [rows, *shape]
        return (torch.randn(sizes, dtype=dtype, generator=torch.Generator().manual_seed(rows)),)

    need_same(model, drawn(3), [drawn(1), drawn(8)], BOUNDS[dtype], batch=axis)


@pytest.mark.parametrize("dtype", [F64, torch.float32], ids=["f64", "f32"])
def test_messages_with_any_number_of_nodes_and_edges(dtype):
    model = cgenn.EGCL(cgenn.CliffordAlgebra(SPACE), 2, 3, 2, edge_attr_features=1).to(dtype)

    def drawn(nodes, edges):
        generator = torch.Generator().manual_seed(nodes)
        ends = torch.randint(0, nodes, (2, edges), generator=generator)
        h, attributes = (torch.randn(n, f, 8, generator=generator, dtype=dtype) for n, f in ((nodes, 2), (edges, 1)))
        return h, ends, attributes

    varies = torch.export.Dim.DYNAMIC
    shapes = ({0: varies}, {1: varies}, {0: varies})
    need_same(model, drawn(4, 7), [drawn(9, 3)], BOUNDS[dtype], dynamic_shapes=shapes)


def test_a_method_of_a_network():
    model = disturb(cgenn.NBodyCGGNN(hidden_features=4, n_layers=1).double())

    def batch(systems):
        generator = torch.Generator().manual_seed(systems)
        loc, vel, target = torch.randn(3, systems, 5, 3, generator=generator, dtype=F64)
        pairs = torch.tensor([(i, j) for i in range(5) for j in range(5) if i != j]).T
        charges = torch.randn(systems, 5, 1, generator=generator, dtype=F64)
        return [
            loc,
            vel,
            torch.randn(systems, 20, 1, generator=generator, dtype=F64),
            charges,
            target,
            pairs.repeat(systems, 1, 1),
        ]

    made = export.program(model.predict, (batch(2),), batch=0)
    assert distance(made.module()(batch(7)), model.predict(batch(7))) <= BOUNDS[F64]


TRANSFORMERS = {
    "LGATr": {"multivectors": (5, 2, 16), "scalars": (5, 1)},
    "ConditionalLGATr": {"multivectors": (5, 1, 16), "multivectors_cond": (4, 2, 16)},
    "LGATrSlim": {"vectors": (5, 2, 4), "scalars": (5, 1)},
    "GATr": {"multivectors": (5, 2, 16), "scalars": (5, 1)},
}


def transformer(kind, dtype):
    many = {"num_heads": 2}
    common = {"num_blocks": 1, "in_s_channels": 1, "out_s_channels": 1, "hidden_s_channels": 4}
    of_mv = {"in_mv_channels": 2, "out_mv_channels": 1, "hidden_mv_channels": 2, "attention": many, "mlp": {}}
    options = {
        "LGATr": common | of_mv,
        "ConditionalLGATr": common
        | of_mv
        | {
            "in_mv_channels": 1,
            "in_s_channels": 0,
            "mv_channels_cond": 2,
            "s_channels_cond": 0,
            "crossattention": many,
        },
        "LGATrSlim": common | {"in_v_channels": 2, "out_v_channels": 1, "hidden_v_channels": 4, "num_heads": 2},
        "GATr": common | of_mv,
    }[kind]
    package = transformer_cases.OURS["gatr" if kind == "GATr" else "lgatr"]
    torch.manual_seed(0)
    with default_dtype(dtype):
        return disturb(getattr(package, kind)(**options).to(dtype).eval())


@pytest.mark.parametrize("dtype", sampled([pytest.param(F64, id="f64"), pytest.param(torch.float32, id="f32")], 2))
@pytest.mark.parametrize("kind", TRANSFORMERS)
def test_transformers(kind, dtype):
    model, shapes = transformer(kind, dtype), TRANSFORMERS[kind]

    def drawn(batch):
        generator = torch.Generator().manual_seed(batch)
        return {k: torch.randn(batch, *s, dtype=dtype, generator=generator) for k, s in shapes.items()}

    # GATr's distances of points amplify roundings a thousandfold.
    bound = BOUNDS[dtype] * (100 if kind == "GATr" and dtype != F64 else 1)
    need_same(model, drawn(2), [drawn(5)], bound, batch=0)


@pytest.mark.parametrize(
    "name",
    [
        "linear_3",
        "conv_2d",
        "conv_2d_rotation",
        "spectral_2d",
        "g3_norm",
        "pga_linear",
        "act",
        "batch_norm_2d_eval",
        "group_norm_3d",
        "fluid_net",
    ],
)
def test_layers_for_fields(name):
    case = BY_NAME[name]
    with default_dtype(F64):
        inputs, _ = drawn(case)
        model = disturb(ours(case).double().eval())
    (x,) = inputs.values()
    # Fourier layers return the dtype of their input.
    need_same(model, (torch.cat([x, x + 0.3]),), [(torch.cat([x, 0.1 * x, x - 0.7, -x]),)], BOUNDS[F64], batch=0)


# In other programs.

LOADED = """
import sys
import torch
made = torch.export.load(sys.argv[1])
x, expected = torch.load(sys.argv[2])
assert float((made.module()(x) - expected).abs().max()) <= 1e-12
assert "gradewise" not in sys.modules
"""


def test_a_saved_program_runs_without_gradewise(tmp_path):
    model, shape, _ = cemlp(F64)
    made = export.program(model, torch.randn(3, *shape, dtype=F64), batch=0)
    torch.export.save(made, tmp_path / "model.pt2")
    x = torch.randn(7, *shape, dtype=F64)
    torch.save((x, model(x).detach()), tmp_path / "expected.pt")
    subprocess.run([sys.executable, "-c", LOADED, tmp_path / "model.pt2", tmp_path / "expected.pt"], check=True)


SOURCE = Path(__file__).parent / "load_package.cpp"


@pytest.mark.skipif(not shutil.which(os.environ.get("CXX", "g++")), reason="no C++ compiler: CXX names one, or g++")
@pytest.mark.parametrize("dtype", sampled([pytest.param(torch.float32, id="f32"), pytest.param(F64, id="f64")], 2))
def test_a_program_in_cpp(dtype, tmp_path, loader):
    """AOTInductor's package of a layer, loaded by a program without Python, for another number of rows than the example."""
    model, shape, _ = accelerated(dtype)
    made = export.program(model, torch.randn(3, *shape, dtype=dtype), batch=0)
    package = torch._inductor.aoti_compile_and_package(made, package_path=str(tmp_path / "model.pt2"))
    x = torch.randn(11, *shape, dtype=dtype)
    x.numpy().tofile(tmp_path / "x")
    letter = {F64: "d", torch.float32: "f"}[dtype]
    subprocess.run([loader, package, letter, tmp_path / "x", tmp_path / "y", *map(str, x.shape)], check=True)
    expected = model(x).detach()
    found = torch.from_numpy(np.fromfile(tmp_path / "y", expected.numpy().dtype)).view(expected.shape)
    assert distance(found, expected) <= BOUNDS[dtype]


@pytest.fixture(scope="module")
def loader(tmp_path_factory):
    """The program that loads packages."""
    torch_folder = Path(torch.__file__).parent
    program = tmp_path_factory.mktemp("loader") / "load_package"
    includes = [f"-I{torch_folder / 'include'}", f"-I{torch_folder / 'include/torch/csrc/api/include'}"]
    libraries = [
        f"-L{torch_folder / 'lib'}",
        "-Wl,--no-as-needed",
        "-ltorch",
        "-ltorch_cpu",
        "-lc10",
        f"-Wl,-rpath,{torch_folder / 'lib'}",
    ]
    flags = ["-std=c++20", "-O0", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
    compiler = os.environ.get("CXX", "g++")
    subprocess.run([compiler, *flags, *includes, SOURCE, "-o", program, *libraries], check=True)
    return program


# What is refused.


class Counted(nn.Module):
    """A layer whose work depends on the numbers in its input."""

    def forward(self, x):
        return x * 2 if x.sum().item() > 0 else x


class Fixed(nn.Module):
    def forward(self, x):
        return x.reshape(len(x), -1)


class Inside(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.first = cgenn.MVLinear(cgenn.CliffordAlgebra(SPACE), 3, 4)
        self.parts = nn.ModuleList([nn.Identity(), layer])

    def forward(self, x):
        return self.parts[1](self.first(x))


class Foreign(nn.Module):
    def forward(self, x):
        return torch.ops.gradewise_test.doubled(x)


@pytest.fixture(scope="module")
def foreign():
    library = torch.library.Library("gradewise_test", "DEF")
    library.define("doubled(Tensor x) -> Tensor")
    library.impl("doubled", lambda x: 2 * x, "CompositeExplicitAutograd")
    library.impl("doubled", lambda x: torch.empty_like(x), "Meta")
    yield
    library._destroy()


@pytest.mark.parametrize(
    ("layer", "text"),
    [
        (Counted(), r"parts\.1 \(Counted\) cannot be exported: .*data-dependent"),
        (Fixed(), r"parts\.1 \(Fixed\) cannot be exported: it fixes a size that is to vary"),
        (Foreign(), r"parts\.1 \(Foreign\) calls gradewise_test\.doubled"),
        (
            cgenn.MVLinear(cgenn.CliffordAlgebra(SPACE), 5, 1),
            r"parts\.1 \(MVLinear\) cannot be exported: ShapeError: mv_linear.*5",
        ),
    ],
    ids=["data", "size", "library", "shape"],
)
def test_the_module_to_blame_is_named(layer, text, foreign):
    model = Inside(layer)
    with pytest.raises(gradewise.ArgumentError, match=text):
        export.program(model, torch.randn(3, 3, 8), batch=0)
    with pytest.raises(gradewise.ArgumentError, match=text):
        export.program(model.forward, torch.randn(3, 3, 8), batch=0)


def test_bad_arguments_raise():
    model, x = flash.Layer(4, 3), torch.randn(8, 3, 4)
    for call, text in (
        (
            lambda: export.program(len, x),
            "the model is a builtin_function_or_method, expected a torch.nn.Module or a method",
        ),
        (lambda: export.program(model, 3), "the example is a int"),
        (lambda: export.program(model, x, batch=3), r"batch=3, and a tensor of the example has shape \[8, 3, 4\]"),
        (lambda: export.program(model, x[:, :1], batch=1), r"axis 1 of a tensor of shape \[8, 1, 4\] is to vary"),
        (lambda: export.program(model, x, batch=1, dynamic_shapes=({1: 3},)), "both batch and dynamic_shapes"),
        (lambda: export.program(model, (x, x)), "cannot be exported"),
    ):
        with pytest.raises(gradewise.ArgumentError, match=text):
            call()


def test_operators_are_operators_again_afterwards():
    x = torch.randn(8, 3, 4)
    model = flash.Layer(4, 3)
    export.program(model, x)
    with pytest.raises(gradewise.ArgumentError):
        export.program(Inside(Counted()), torch.randn(3, 3, 8))
    assert any("gradewise.clifford_layer" in name for name in names(torch.export.export(model, (x,))))
