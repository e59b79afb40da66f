"""Random models of published modules with random edits, harmless and harmful: `accelerate` never changes what they compute.

As a program: `python tests/fuzz_accelerate.py [--models 10000] [--seed 0]`. It ends with the number of models that compute something else
afterwards, beyond 1e-10 of its size in float64.
"""

import argparse
import contextlib
import copy
import math
import random
import sys
import warnings
from collections import Counter

import torch
from torch import nn

import gradewise.torch as gt
import published as P

TOLERANCE = 1e-10
METRICS = [
    (1.0,),
    (-1.0,),
    (1.0, 1.0),
    (1.0, -1.0),
    (-1.0, 1.0),
    (0.0, 1.0),
    (1.0, 0.0),
    (-1.0, -1.0),
    (1.0, 1.0, 1.0),
    (1.0, -1.0, 1.0),
    (0.0, 1.0, -1.0),
    (-1.0, 0.0, 1.0),
]


def edited(base, name=None, **members):
    """A subclass, under the same name unless another is given."""
    return type(name or base.__name__, (base,), {"__module__": __name__, **members})


def after(change):
    """A forward pass that changes the result of the published one."""
    return lambda self, *given: change(self, super_forward(self)(*given))


def super_forward(self):
    """The forward pass of the class above the first that has one."""
    owners = [cls for cls in type(self).__mro__ if "forward" in vars(cls) and cls.__module__ in (__name__, P.__name__)]
    return owners[1].forward.__get__(self)


def around(change):
    """A forward pass that also sees the input."""
    return lambda self, x, *rest: change(self, x, super_forward(self)(x, *rest))


class Spied:
    """A descriptor of a class that tells nothing."""

    note = "harmless"

    def describe(self):
        return self.note


def _dropped(y):
    """Dropout whose mask does not depend on how its input lies in memory, as that of PyTorch does."""
    return 2.0 * y * (torch.rand(y.shape) < 0.5)


# Edits of any class with one input. Those that keep what is computed come first.
def subclasses(base):
    made = {
        "same name": edited(base),
        "another name": edited(base, "My" + base.__name__),
        "a mixin": type(base.__name__, (base, Spied), {"__module__": __name__}),
        "the published forward": edited(base, forward=lambda self, x: super_forward(self)(x)),
        "twice, halved": edited(base, forward=after(lambda self, y: (y + y) / 2)),
        "contiguous": edited(base, forward=after(lambda self, y: y.contiguous())),
        # From here on they change it.
        "a skip": edited(base, forward=around(lambda self, x, y: y + x if x.shape == y.shape else 2 * y)),
        "another scale": edited(base, forward=after(lambda self, y: y * (1 + 1e-7))),
        "tanh": edited(base, forward=after(lambda self, y: torch.tanh(y))),
        "a clamp": edited(base, forward=after(lambda self, y: y.clamp(-2.0, 2.0))),
        "a shift": edited(base, forward=after(lambda self, y: y + 1e-6)),
        "dropout": edited(base, forward=after(lambda self, y: _dropped(y) if self.training else y)),
        "noise": edited(
            base, forward=after(lambda self, y: y + 0.1 * torch.randn(y.shape, dtype=y.dtype) if self.training else y)
        ),
        "eval only": edited(base, forward=after(lambda self, y: y if self.training else 1.5 * y)),
        "detached": edited(base, forward=after(lambda self, y: y.detach())),
        "half detached": edited(base, forward=after(lambda self, y: y * 0.5 + y.detach() * 0.5)),
        "without gradients": edited(base, forward=torch.no_grad()(lambda self, x: super_forward(self)(x))),
        "rows normed": edited(base, forward=after(lambda self, y: y - y.mean(dim=0, keepdim=True))),
        "features rolled": edited(base, forward=after(lambda self, y: y.roll(1, dims=1))),
        "blades rolled": edited(base, forward=after(lambda self, y: y.roll(1, dims=-1))),
        "conjugated": edited(base, forward=after(lambda self, y: y * (1 - 2 * self.algebra.bbo_grades % 4))),
        "rounded": edited(base, forward=after(lambda self, y: y.float().double() if y.dtype == torch.float64 else y)),
        "gradient scaled": edited(base, forward=after(lambda self, y: 0.1 * y + (0.9 * y).detach())),
        "only scalars": edited(base, forward=after(lambda self, y: y * (self.algebra.bbo_grades == 0))),
        "sees its input's size": edited(base, forward=around(lambda self, x, y: y / len(x))),
        "a call around": edited(base, __call__=lambda self, *given: 1.25 * nn.Module.__call__(self, *given)),
    }
    return made


def _counts(self, x):
    self.calls = getattr(self, "calls", 0) + 1
    return super_forward(self)(x) * (1.0 if self.calls < 3 else 2.0)


def _in_place(self, x):
    x += 0.5
    return super_forward(self)(x)


SPECIAL = {
    P.MVLayerNorm: {
        "another epsilon": edited(
            P.MVLayerNorm,
            forward=lambda self, x: (
                self.a[..., None]
                * x
                / (self.algebra.smooth(self.algebra.forms(x).sum(-1)).mean(1, keepdim=True)[..., None] + 0.1)
            ),
        ),
        "no epsilon": edited(
            P.MVLayerNorm,
            forward=lambda self, x: (
                self.a[..., None]
                * x
                / self.algebra.smooth(self.algebra.forms(x).sum(-1)).mean(1, keepdim=True)[..., None]
            ),
        ),
        "greatest norm": edited(
            P.MVLayerNorm,
            forward=lambda self, x: (
                self.a[..., None]
                * x
                / (self.algebra.smooth(self.algebra.forms(x).sum(-1)).amax(1, keepdim=True)[..., None] + 1e-6)
            ),
        ),
    },
    P.NormalizationLayer: {
        "another epsilon": edited(
            P.NormalizationLayer,
            forward=lambda self, x: (
                x
                / (
                    self.algebra.by_blade(torch.sigmoid(self.a) * (self.algebra.smooth(self.algebra.forms(x)) - 1) + 1)
                    + 1e-3
                )
            ),
        ),
        "relu": edited(
            P.NormalizationLayer,
            forward=lambda self, x: (
                x
                / (
                    self.algebra.by_blade(torch.relu(self.a) * (self.algebra.smooth(self.algebra.forms(x)) - 1) + 1)
                    + 1e-6
                )
            ),
        ),
    },
    P.MVSiLU: {
        "tanh gates": edited(P.MVSiLU, gate=lambda self, x: torch.tanh(x)),
        "hard gates": edited(P.MVSiLU, gate=lambda self, x: nn.functional.hardsigmoid(x)),
        "absolute": edited(P.MVSiLU, invariants=lambda self, x: P.MVSiLU.invariants(self, x).abs()),
        "scalar too": edited(P.MVSiLU, invariants=lambda self, x: self.algebra.forms(x)),
    },
    P.MVLinear: {
        "squared weights": edited(
            P.MVLinear, forward=lambda self, x: P.MVLinear.forward(self, x) + 1e-3 * self.weight.sum()
        ),
        "in place": edited(P.MVLinear, forward=_in_place),
        "counts": edited(P.MVLinear, forward=_counts),
    },
    P.SteerableGeometricProductLayer: {
        "sum without root": edited(
            P.SteerableGeometricProductLayer,
            forward=lambda self, x: P.SteerableGeometricProductLayer.forward(self, x) * math.sqrt(2),
        ),
        "factors exchanged": edited(
            P.SteerableGeometricProductLayer,
            forward=lambda self, x: torch.einsum(
                "bni,nijk,bnk->bnj", self.normalization(self.linear_right(x)), self._get_weight(), x
            ),
        ),
    },
    P.CEMLP: {
        "residual": edited(
            P.CEMLP,
            forward=lambda self, x: [x := x + y if (y := l(x)).shape == x.shape else y for l in self.layers][-1],
        ),
        "backwards": edited(
            P.CEMLP,
            forward=lambda self, x: (
                P.CEMLP.forward(self, x)
                if self.layers[0][0].weight.shape != self.layers[-1][0].weight.shape
                else [x := l(x) for l in reversed(self.layers)][-1]
            ),
        ),
        "viewed": edited(
            P.CEMLP,
            forward=lambda self, x: [x := l(x).view(len(x), -1).view(len(x), -1, x.shape[-1]) for l in self.layers][-1],
        ),
        "first twice": edited(P.CEMLP, forward=lambda self, x: P.CEMLP.forward(self, x) + self.layers[0](x).sum()),
    },
}


def _layers(base):
    """Layers of message passing with edits."""
    return {
        "same name": edited(base),
        "another name": edited(base, "My" + base.__name__),
        "senders less receivers": edited(base, message=lambda self, a, b, e=None: base.message(self, b, a, e)),
        "sums of both": edited(base, message=lambda self, a, b, e=None: base.message(self, a, -b, e)),
        "gated": edited(base, message=lambda self, a, b, e=None: torch.sigmoid(base.message(self, a, b, e))),
        "both added": edited(base, update=lambda self, m, h, n=None: base.update(self, m, h, n) + 0.1 * h),
        "scaled": edited(base, update=lambda self, m, h, n=None: base.update(self, m / 2, h, n)),
        "no loops": edited(
            base, forward=lambda self, h, e, a=None, n=None: base.forward(self, h, e[:, e[0] != e[1]], a, n)
        ),
        "viewed": edited(
            base,
            message=lambda self, a, b, e=None: (
                base.message(self, a, b, e).view(len(a), -1).view(len(a), -1, a.shape[-1])
            ),
        ),
    }


LAYERS = {base: _layers(base) for base in (P.EGCL, P.Simplicial.EGCL)}
KINDS = (
    P.MVLinear,
    P.MVSiLU,
    P.NormalizationLayer,
    P.MVLayerNorm,
    P.SteerableGeometricProductLayer,
    P.FullyConnectedSteerableGeometricProductLayer,
    P.CEMLP,
)
EDITS = {base: {**subclasses(base), **SPECIAL.get(base, {})} for base in KINDS}


def one(kind, algebra, a, b, rng):
    """A module of a class, from ``a`` features to its own number of them, with that number."""
    init = rng.choice([0.0, None, 0.5])
    first = rng.random() < 0.8
    if kind is P.MVLinear:
        blades = (
            (0,)
            if rng.random() < 0.8
            else tuple(rng.sample(range(algebra.n_blades), rng.choice([1, min(2, algebra.n_blades)])))
        )
        return kind(algebra, a, b, rng.random() < 0.8, rng.random() < 0.8, blades), b
    if kind is P.MVSiLU:
        return kind(algebra, a, rng.choice(["mag2", "mag2", "norm"])), a
    if kind is P.SteerableGeometricProductLayer:
        return kind(algebra, a, first, init), a
    if kind is P.FullyConnectedSteerableGeometricProductLayer:
        return kind(algebra, a, b, first, init), b
    if kind is P.CEMLP:
        return kind(algebra, a, rng.choice([2, 3]), b, rng.choice([1, 2]), init), b
    return kind(algebra, a), a


class Model(nn.Module):
    """Modules in a row, with something between them."""

    def __init__(self, algebra, parts, between, edges):
        super().__init__()
        self.algebra, self.parts, self.between = algebra, nn.ModuleList(parts), between
        self.register_buffer("edges", edges)

    def forward(self, x, *attributes):
        for part, between in zip(self.parts, self.between):
            if hasattr(part, "edge_model"):
                arguments = [x, self.edges, *(a if wanted else None for a, wanted in zip(attributes, part.wanted))]
                y = part(*arguments)
            else:
                y = part(x)
            if between == "skip" and y.shape == x.shape:
                y = y + x
            elif between == "contiguous":
                y = y.contiguous()
            elif between == "shift":
                y = y - 0.25
            elif (
                between == "view"
                and isinstance(part, (P.MVSiLU, P.MVLayerNorm, P.NormalizationLayer))
                and x.is_contiguous()
            ):
                y = y.view(len(y), -1).view(len(y), -1, y.shape[-1])
            x = y
        return x


def hooks(module, rng):
    choice = rng.choice(["doubles", "looks", "before"])
    if choice == "doubles":
        module.register_forward_hook(lambda module, given, result: 2 * result)
    elif choice == "looks":
        module.register_forward_hook(lambda module, given, result: None)
    else:
        module.register_forward_pre_hook(lambda module, given: (given[0] * 1.5, *given[1:]))
    return f"hook that {choice}"


def damage(model, rng):
    """Edits one place of a finished model; says what."""
    modules = [m for m in model.modules() if type(m).__module__ in (P.__name__, __name__) and not isinstance(m, Model)]
    modules = [m for m in modules if not isinstance(m, P.CliffordAlgebra)]
    if not modules:
        return "nothing"
    module = rng.choice(modules)
    choice = rng.choice(
        [
            "class",
            "class",
            "class",
            "patch",
            "hook",
            "algebra",
            "table",
            "sequence",
            "norm",
            "freeze",
            "tie",
            "constant",
            "extra",
        ]
    )
    base = next((b for b in (*KINDS, *LAYERS) if type(module) is b), None)
    if choice == "class" and base is not None:
        edits = EDITS.get(base) or LAYERS[base]
        name = rng.choice(sorted(edits))
        module.__class__ = edits[name]
        return f"{base.__name__} with {name}"
    if choice == "patch":
        forward = module.forward
        scale = rng.choice([1.0, 1.0, 1.01])
        module.forward = lambda *given, **named: scale * forward(*given, **named)
        # What is copied keeps the original's forward pass, so that such a model is compared without copies.
        return "patched forward"
    if choice == "hook":
        return hooks(module, rng)
    if choice == "algebra":
        kind = rng.choice(["smooth", "by_blade", "embed"])
        if kind == "smooth":
            model.algebra.__class__ = edited(P.CliffordAlgebra, smooth=lambda self, q: (q**2 + 1e-8) ** 0.25)
        elif kind == "by_blade":
            model.algebra.__class__ = edited(
                P.CliffordAlgebra, by_blade=lambda self, g: P.CliffordAlgebra.by_blade(self, g).flip(-1)
            )
        else:
            model.algebra.__class__ = edited(
                P.CliffordAlgebra, embed=lambda self, t, i: 1.5 * P.CliffordAlgebra.embed(self, t, i)
            )
        return f"algebra with another {kind}"
    if choice == "table":
        with torch.no_grad():
            kind = rng.choice(["sign", "zero", "metric"])
            if kind == "metric":
                model.algebra.metric.neg_()
            else:
                model.algebra.cayley[-1] *= -1.0 if kind == "sign" else 0.0
        return f"{kind} in the algebra's tables"
    if choice == "sequence":
        networks = [m for m in model.modules() if isinstance(m, P.CEMLP)]
        if networks:
            network = rng.choice(networks)
            block = rng.choice(list(network.layers))
            kind = rng.choice(["activation twice", "norm first", "list", "without norm", "identity", "shared"])
            if kind == "activation twice":
                block.insert(1, copy.deepcopy(block[1]))
            elif kind == "norm first" and len(block) == 4 and block[0].weight.shape[0] == block[3].a.shape[-1]:
                block[2], block[3] = block[3], block[2]
            elif kind == "list":
                network.layers = nn.ModuleList(network.layers)
            elif kind == "without norm":
                del block[-1]
            elif kind == "identity":
                block[-1] = nn.Identity()
            else:
                network.layers[-1] = network.layers[0]
            return f"sequence: {kind}"
    if choice == "norm":
        linear = [m for m in model.modules() if isinstance(m, P.MVLinear)]
        if linear:
            nn.utils.parametrizations.weight_norm(rng.choice(linear), "weight")
            return "weight norm"
    if choice == "freeze":
        for parameter in module.parameters():
            parameter.requires_grad_(rng.random() < 0.5)
        return "frozen parameters"
    if choice == "tie":
        linear = [m for m in model.modules() if isinstance(m, P.MVLinear)]
        for a in linear:
            for b in linear:
                if (
                    a is not b
                    and "weight" in a._parameters
                    and "weight" in b._parameters
                    and a.weight.shape == b.weight.shape
                ):
                    b.weight = a.weight
                    return "tied weights"
    if choice == "constant":
        if isinstance(module, P.MVLinear) and module.bias is not None:
            module.b_dims = tuple(rng.sample(range(module.algebra.n_blades), module.bias.shape[2]))
            return "bias on other blades"
        if isinstance(module, (P.SteerableGeometricProductLayer, P.FullyConnectedSteerableGeometricProductLayer)):
            module.product_paths = rng.sample(module.product_paths, len(module.product_paths))
            return "paths in another order"
    if choice == "extra":
        module.register_buffer("count", torch.zeros(1))
        module.note = rng.choice(["a", 1, None, (1, 2)])
        return "attributes"
    return "nothing"


def random_model(rng):
    """A model, its arguments, and what was done to it."""
    algebra = P.CliffordAlgebra(rng.choice(METRICS))
    nodes = rng.choice([1, 4, 5])
    edges = torch.tensor([[rng.randrange(nodes) for _ in range(2 * nodes)] for _ in range(2)])
    start = features = rng.choice([1, 2, 3])
    parts, between = [], []
    attributes = (rng.choice([1, 2]), rng.choice([1, 2]))
    for _ in range(rng.choice([1, 1, 2, 3])):
        if rng.random() < 0.25:
            wanted = (rng.random() < 0.5, rng.random() < 0.5)
            sizes = [a * w for a, w in zip(attributes, wanted)]
            if rng.random() < 0.4:
                part = P.EGCL(algebra, features, 2, features, *sizes, residual=rng.random() < 0.7)
            else:
                how, flow = (
                    rng.choice(["mean", "sum", "add", "max"]),
                    rng.choice(["source_to_target", "target_to_source"]),
                )
                part = P.Simplicial.EGCL(algebra, features, 2, features, *sizes, rng.random() < 0.7, how, flow)
            part.wanted = wanted
        elif rng.random() < 0.15:
            part = P.block(algebra, features, 2)
            features = 2
        else:
            part, features = one(rng.choice(KINDS), algebra, features, rng.choice([1, 2, 3]), rng)
        parts.append(part)
        between.append(rng.choice(["", "", "skip", "contiguous", "shift", "view"]))
    model = Model(algebra, parts, between, edges).double()
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    edits = [damage(model, rng) for _ in range(rng.choice([0, 1, 1, 2]))]
    sizes = (start, *attributes)
    rows = (nodes, edges.shape[1], nodes)
    given = [
        torch.randn(n, f, algebra.n_blades, generator=generator, dtype=torch.float64)
        * rng.choice([1.0, 1.0, 0.01, 10.0])
        for n, f in zip(rows, sizes)
    ]
    return model, given, edits


def observed(model, given, is_training):
    """Outputs and gradients."""
    model.train(is_training)
    leaves = [x.clone().requires_grad_() for x in given]
    torch.manual_seed(1)
    output = model(*(x.clone() for x in leaves))
    cotangent = torch.randn(output.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    wanted = [*leaves, *(p for p in model.parameters() if p.requires_grad)]
    if not output.requires_grad:
        return [output.detach(), *(None for _ in wanted)]
    return [output.detach(), *torch.autograd.grad((output * cotangent.to(output)).sum(), wanted, allow_unused=True)]


def distance(found, expected):
    """The greatest difference of tensors, relative to each, or to all gradients where one has only rounding errors."""
    largest = max((float(b.abs().max()) for b in expected[1:] if b is not None and b.numel()), default=0.0)
    worst = 0.0
    for index, (a, b) in enumerate(zip(found, expected, strict=True)):
        if (a is None) != (b is None) or (a is not None and a.shape != b.shape):
            return math.inf
        if a is None or not a.numel():
            continue
        scale = max(float(b.abs().nan_to_num().max()), 1e-5 * largest if index else 0.0, 1e-12)
        same = (a == b) | (a.isnan() & b.isnan())
        size = float(torch.where(same, 0.0, (a - b).abs()).max()) / scale
        worst = max(worst, math.inf if math.isnan(size) else size)
    return worst


@contextlib.contextmanager
def last_bits_changed(model, seed):
    """The model with the last bit of each parameter up, down or as it is."""
    generator = torch.Generator().manual_seed(seed)
    kept = [(p, p.detach().clone()) for p in model.parameters()]
    with torch.no_grad():
        for p, _ in kept:
            p.mul_(1 + 2.0**-52 * torch.randint(-1, 2, p.shape, generator=generator).double())
    try:
        yield
    finally:
        with torch.no_grad():
            for p, value in kept:
                p.copy_(value)


def check(seed):
    """Accelerates one model. What is wrong afterwards, or None; and what was edited, and the modules replaced and left."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    model, given, edits = random_model(rng)
    # On the model itself: a copy of a patched forward pass would be the original's. Counters are the model's own state, and start again.
    counters = [m for m in model.modules() if type(m).__dict__.get("forward") is _counts]

    def every(given=given):
        results = []
        for is_training in (False, True):
            for module in counters:
                module.__dict__.pop("calls", None)
            results.append(observed(model, given, is_training))
        return results

    try:
        expected = every()
    except Exception:
        # The edit has made a model that does not run.
        return None, edits, None
    # What rounding alone changes: a model near a root of a norm amplifies the last bit of its inputs and parameters. No more than 1e-8: a
    # model that jumps, such as one that rounds its output, would hide any difference.
    rounded = max(map(distance, every([x * (1 + 2.0**-52) for x in given]), expected))
    with last_bits_changed(model, seed):
        rounded = max(rounded, *map(distance, every(), expected))
    # Ten times, as `accelerate` allows layers: a sum in another order has several roundings.
    tolerance = max(TOLERANCE, min(10 * rounded, 1e-8))
    classes = [type(m) for m in model.modules()]
    try:
        report = gt.accelerate(model, verbose=False)
    except ValueError as error:
        return (None if "none of the modules" in str(error) else repr(error)), edits, None
    counts = (len(report.replaced), len(report.left))
    try:
        size = max(map(distance, every(), expected))
        if not size <= tolerance:
            return f"differs by {size:.1e}", edits, counts
        if not any("forward" in m.__dict__ for m in model.modules()):
            kept = model
            model = copy.deepcopy(model)
            counters = [m for m in model.modules() if type(m).__dict__.get("forward") is _counts]
            size = max(map(distance, every(), expected))
            if not size <= tolerance:
                return f"a copy differs by {size:.1e}", edits, counts
            model = kept
        gt.restore(model)
        if [type(m) for m in model.modules()] != classes:
            return "classes are not restored", edits, counts
        counters = [m for m in model.modules() if type(m).__dict__.get("forward") is _counts]
        if not max(map(distance, every(), expected)) == 0.0:
            return "restored, it computes something else", edits, counts
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}", edits, counts
    return None, edits, counts


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    misses, replaced, left, ran = 0, 0, 0, 0
    done = Counter()
    for seed in range(options.seed, options.seed + options.models):
        wrong, edits, counts = check(seed)
        done.update(edits)
        if counts is not None:
            ran += 1
            replaced, left = replaced + counts[0], left + counts[1]
        if wrong is not None:
            misses += 1
            print(f"seed {seed}: {wrong}; {', '.join(edits) or 'no edit'}", flush=True)
        if (seed + 1 - options.seed) % 100 == 0:
            print(f"{seed + 1 - options.seed} models, {misses} misses", flush=True)
    print(f"{options.models} models, {ran} accelerated, {replaced} modules replaced, {left} left, {misses} misses")
    print("edits:", ", ".join(f"{name} {n}" for name, n in done.most_common()))
    sys.exit(1 if misses else 0)


if __name__ == "__main__":
    main()
