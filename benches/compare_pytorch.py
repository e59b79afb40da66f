"""Times PyTorch and gradewise on this machine in one run: operator, layer, fully connected layer, n-body training step.

    python3 benches/compare_pytorch.py [--threads N] [--no-compile]

Needs PyTorch (and a C++ compiler for torch.compile) and a Rust toolchain. The PyTorch operators are written term by
term from the Cayley table and compiled with torch.compile; the n-body model is the published reference's arithmetic: a
dense Cayley tensor in einsum, eager. Medians after a warm-up; both sides use the same number of threads.
"""
import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import time

import torch

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--threads", type=int, default=os.cpu_count())
parser.add_argument("--no-compile", action="store_true", help="run the operators eagerly")
arguments = parser.parse_args()
torch.set_num_threads(arguments.threads)


class Algebra:
    """Blades, terms and paths of Cl(p,q,r) from the definition of the product of two blades."""

    def __init__(self, p, q=0, r=0):
        n = p + q + r
        metric = [1] * p + [-1] * q + [0] * r
        self.blades = [b for g in range(n + 1) for b in itertools.combinations(range(n), g)]
        self.grades = [len(b) for b in self.blades]
        index = {b: i for i, b in enumerate(self.blades)}
        self.terms = []
        for i, a in enumerate(self.blades):
            for k, b in enumerate(self.blades):
                sign, word = 1, list(a) + list(b)
                swaps = sum(word[s] > word[t] for s in range(len(word)) for t in range(s + 1, len(word)))
                for e in set(a) & set(b):
                    sign *= metric[e]
                if sign:
                    out = tuple(sorted(set(a) ^ set(b)))
                    self.terms.append((i, k, index[out], sign * (-1) ** swaps))
        grade = lambda t: (self.grades[t[0]], self.grades[t[2]], self.grades[t[1]])
        self.paths = sorted({grade(t) for t in self.terms})
        self.path_of = [self.paths.index(grade(t)) for t in self.terms]
        self.q = torch.tensor([float(math.prod(metric[e] for e in b)) for b in self.blades])


def gate(x):
    return x * (0.5 * (1 + torch.erf(x[:1] / math.sqrt(2))))


def rms_norm(algebra, parts):
    out = []
    for grade in range(max(algebra.grades) + 1):
        group = [o for o, g in zip(parts, algebra.grades) if g == grade]
        scale = torch.rsqrt(sum(o * o for o in group).mean(-1, keepdim=True) + 1e-6)
        out += [o * scale for o in group]
    return torch.stack(out)


def gelu_sgp_norm(algebra, x, y, w):
    x, y = gate(x), gate(y)
    parts = [0] * len(algebra.blades)
    for (i, k, j, s), path in zip(algebra.terms, algebra.path_of):
        parts[j] = parts[j] + s * w[:, path] * x[i] * y[k]
    return rms_norm(algebra, parts)


def gelu_fcgp_norm(algebra, x, y, w):
    x, y = gate(x), gate(y)
    pairs = {}
    for (i, k, j, s), path in zip(algebra.terms, algebra.path_of):
        pairs[path, j] = pairs.get((path, j), 0) + s * x[i] * y[k]
    parts = [0] * len(algebra.blades)
    for (path, j), pair in pairs.items():
        parts[j] = parts[j] + pair @ w[path]
    return rms_norm(algebra, parts)


def layer(algebra, op, x, weight, bias, w):
    y = torch.stack([x[i] @ weight[g] for i, g in enumerate(algebra.grades)])
    y = torch.cat([y[:1] + bias, y[1:]])
    return op(algebra, x, y, w)


def median_ms(work):
    start = time.perf_counter()
    work()
    first = time.perf_counter() - start
    times = []
    for _ in range(max(7, min(60, int(1 / max(first, 1e-6))))):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def bench_layer(results, signature, batch, n, full):
    algebra = Algebra(*signature)
    name = "Cl({},{},{}) B {} N {}".format(*signature, batch, n)
    kind = "fully connected " if full else ""
    op = gelu_fcgp_norm if full else gelu_sgp_norm
    wrap = (lambda f: f) if arguments.no_compile else torch.compile
    x, y = torch.randn(2, len(algebra.blades), batch, n)
    w = torch.randn(len(algebra.paths), n, n) if full else torch.randn(n, len(algebra.paths))
    weight = torch.randn(max(algebra.grades) + 1, n, n) / math.sqrt(n)
    bias = torch.zeros(n)
    run_op = wrap(lambda x, y, w: op(algebra, x, y, w))
    run_layer = wrap(lambda x, weight, bias, w: layer(algebra, op, x, weight, bias, w))
    with torch.no_grad():
        for _ in range(3):
            run_op(x, y, w), run_layer(x, weight, bias, w)
        results[f"{kind}op fwd {name}"] = median_ms(lambda: run_op(x, y, w))
        results[f"{kind}layer fwd {name}"] = median_ms(lambda: run_layer(x, weight, bias, w))
    leaves = [t.requires_grad_() for t in (x, weight, bias, w)]
    step = lambda: torch.autograd.grad(run_layer(*leaves), leaves, y)
    for _ in range(3):
        step()
    results[f"{kind}layer fwd+bwd {name}"] = median_ms(step)


class NBody(torch.nn.Module):
    """The published model's arithmetic, features `[batch, channels, blades]`, products by a dense Cayley tensor."""

    def __init__(self, hidden=28, layers=3):
        super().__init__()
        self.algebra = algebra = Algebra(3)
        cayley = torch.zeros(8, 8, 8)
        for i, k, j, s in algebra.terms:
            cayley[i, j, k] = s
        self.register_buffer("cayley", cayley)
        self.register_buffer("q", algebra.q)
        grades = torch.tensor(algebra.grades)
        self.register_buffer("grades", grades)
        self.register_buffer("paths", torch.tensor(algebra.paths).T)
        self.parameters_of = torch.nn.ParameterDict()
        p = self.parameters_of
        p["embed_w"], p["embed_b"] = torch.randn(hidden, 3) / math.sqrt(3), torch.zeros(hidden)
        for l in range(layers):
            for net, width in (("edge", hidden + 1), ("node", 2 * hidden)):
                for block in range(2):
                    inputs, key = width if block == 0 else hidden, f"{net}{l}{block}"
                    p[key + "w"], p[key + "b"] = torch.randn(hidden, inputs, 4) / math.sqrt(inputs), torch.zeros(hidden)
                    p[key + "sa"], p[key + "sb"] = torch.ones(hidden, 4), torch.zeros(hidden, 4)
                    p[key + "r"] = torch.randn(hidden, hidden, 4) / math.sqrt(hidden)
                    p[key + "na"], p[key + "g"] = torch.zeros(hidden, 4), torch.randn(hidden, 20) / 2
                    p[key + "l"], p[key + "lb"] = torch.randn(hidden, hidden, 4) / math.sqrt(hidden), torch.zeros(hidden)
                    p[key + "ln"] = torch.ones(hidden)
        p["out_w"], p["out_b"] = torch.randn(1, hidden, 4) / math.sqrt(hidden), torch.zeros(1)
        self.layers = layers

    def linear(self, x, w, b=None):
        y = torch.einsum("bmi,nmi->bni", x, w[..., self.grades] if w.dim() == 3 else w[..., None].expand(-1, -1, 8))
        if b is not None:
            y = torch.cat([y[..., :1] + b[:, None], y[..., 1:]], -1)
        return y

    def by_grade(self, x):
        squares = self.q * x * x
        return torch.stack([squares[..., self.grades == g].sum(-1) for g in range(4)], -1)

    def block(self, key, x):
        p = self.parameters_of
        x = self.linear(x, p[key + "w"], p[key + "b"])
        invariants = torch.cat([x[..., :1], self.by_grade(x)[..., 1:]], -1)
        x = torch.sigmoid(p[key + "sa"] * invariants + p[key + "sb"])[..., self.grades] * x
        r = self.linear(x, p[key + "r"])
        norms = (self.by_grade(r) ** 2 + 1e-16) ** 0.25
        r = r / (torch.sigmoid(p[key + "na"]) * (norms - 1) + 1 + 1e-6)[..., self.grades]
        weights = x.new_zeros(x.shape[1], 4, 4, 4)
        weights[:, self.paths[0], self.paths[1], self.paths[2]] = p[key + "g"]
        weights = weights[:, self.grades][:, :, self.grades][:, :, :, self.grades] * self.cayley
        x = (self.linear(x, p[key + "l"], p[key + "lb"]) + torch.einsum("bni,nijk,bnk->bnj", x, weights, r)) / math.sqrt(2)
        norm = ((self.q * x * x).sum(-1) ** 2 + 1e-16) ** 0.25
        return p[key + "ln"][:, None] * x / (norm.mean(-1, keepdim=True)[..., None] + 1e-6)

    def forward(self, features, attributes, rows, columns):
        p = self.parameters_of
        h = self.linear(features, p["embed_w"], p["embed_b"])
        for l in range(self.layers):
            m = torch.cat([h[rows] - h[columns], attributes], 1)
            m = self.block(f"edge{l}1", self.block(f"edge{l}0", m))
            mean = torch.zeros_like(h).index_add(0, rows, m) / 4
            h = h + self.block(f"node{l}1", self.block(f"node{l}0", torch.cat([h, mean], 1)))
        return self.linear(h, p["out_w"], p["out_b"])[:, 0, 1:4]


def bench_nbody(results):
    model = NBody()
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == 134_625, count
    systems, particles = 100, 5
    features, attributes = torch.randn(500, 3, 8), torch.randn(2000, 1, 8)
    pairs = [(s * 5 + i, s * 5 + j) for s in range(systems) for i in range(5) for j in range(5) if i != j]
    rows, columns = (torch.tensor(side) for side in zip(*pairs))
    target = torch.randn(systems * particles, 3)
    adam = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
    loss = lambda: torch.nn.functional.mse_loss(model(features, attributes, rows, columns), target)

    def step():
        adam.zero_grad()
        loss().backward()
        adam.step()

    step()
    with torch.no_grad():
        results["n-body forward B 100"] = median_ms(loss)
    results["n-body step B 100"] = median_ms(step)


def ours():
    environment = dict(os.environ, RAYON_NUM_THREADS=str(arguments.threads))
    command = ["cargo", "bench", "--quiet", "--bench", "cpu", "--", "--json"]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return {line["name"]: line for line in lines}


mine = ours()
theirs = {}
for shape in [((3, 0, 0), 1024, 128, False), ((3, 0, 0), 4096, 128, False), ((3, 0, 0), 1024, 512, False),
              ((2, 0, 0), 4096, 128, False), ((3, 0, 0), 1024, 128, True)]:
    bench_layer(theirs, *shape)
bench_nbody(theirs)
ceilings = mine["ceilings"]
print(f"PyTorch {torch.__version__}, {arguments.threads} threads; copy {ceilings['copy'] / 1e9:.1f} GB/s, "
      f"f32 product {ceilings['flops'] / 1e9:.0f} GFLOP/s\n")
print("| what | PyTorch ms | gradewise ms | ratio | floor ms | share of the floor |")
print("|---|---|---|---|---|---|")
for name, time_ms in theirs.items():
    row = mine[name]
    print(f"| {name} | {time_ms:.2f} | {row['ms']:.2f} | {time_ms / row['ms']:.1f}× | {row['floor_ms']:.2f} | "
          f"{row['floor_ms'] / row['ms']:.0%} |")
print(f"\nn-body step: {mine['n-body step peak']['bytes'] / 1e6:.0f} MB peak above parameters and optimiser state")
