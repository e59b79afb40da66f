"""Clifford-group-equivariant modules written down densely, from the publication's definitions, to compare fused ones with.

Features are ``[rows, features, blades]``. Nothing of gradewise is used.
"""

import itertools
import math

import torch


class Dense:
    """An algebra by its whole multiplication table."""

    def __init__(self, p, q, r, dtype=torch.float64):
        n = p + q + r
        metric = [1] * p + [-1] * q + [0] * r
        blades = [b for g in range(n + 1) for b in itertools.combinations(range(n), g)]
        self.grades = torch.tensor([len(b) for b in blades])
        self.sizes = [math.comb(n, g) for g in range(n + 1)]
        self.table = torch.zeros(len(blades), len(blades), len(blades), dtype=dtype)
        for (i, a), (k, b) in itertools.product(enumerate(blades), repeat=2):
            swaps = sum(x > y for x in a for y in b)
            squares = math.prod(metric[x] for x in a if x in b)
            product = tuple(sorted(set(a) ^ set(b)))
            self.table[i, blades.index(product), k] = (-1) ** swaps * squares
        g = range(n + 1)
        self.paths = [
            (a, b, c)
            for a, b, c in itertools.product(g, repeat=3)
            if self.table[self.grades == a][:, self.grades == b][:, :, self.grades == c].any()
        ]
        reverse = (-1.0) ** (self.grades * (self.grades - 1) // 2)
        self.squares = (torch.einsum("iji->ij", self.table)[:, 0] * reverse).to(dtype)

    def by_blade(self, x):
        """The last axis, over grades, as one over blades."""
        return x[..., self.grades]

    def quadratic(self, x):
        """The quadratic form of each grade: the last axis is over grades."""
        terms = (x * x * self.squares).split(self.sizes, dim=-1)
        return torch.cat([t.sum(-1, keepdim=True) for t in terms], dim=-1)

    def weights(self, weight):
        """Weights by path, in the last axis, as a table of weighted products."""
        full = torch.zeros(*weight.shape[:-1], *(max(self.grades) + 1,) * 3, dtype=weight.dtype)
        for index, (a, b, c) in enumerate(self.paths):
            full[..., a, b, c] = weight[..., index]
        g = self.grades
        return full[..., g[:, None, None], g[None, :, None], g[None, None, :]] * self.table

    def versor(self, count, generator):
        """The product of random vectors and what undoes it."""
        vectors = torch.zeros(count, len(self.grades), dtype=self.table.dtype)
        vectors[:, self.grades == 1] = torch.randn(count, self.sizes[1], dtype=self.table.dtype, generator=generator)
        versor = torch.zeros(len(self.grades), dtype=self.table.dtype)
        versor[0] = 1.0
        for vector in vectors:
            versor = self.product(versor, vector)
        reverse = versor * (-1.0) ** (self.grades * (self.grades - 1) // 2)
        square = self.product(versor, reverse)[0]
        return versor, reverse / square

    def product(self, a, b):
        return torch.einsum("...i,ijk,...k->...j", a, self.table, b)

    def act(self, versor, inverse, odd, x):
        """The twisted action on every multivector of ``[..., blades]``."""
        sign = (-1.0) ** self.grades if odd else torch.ones_like(self.squares)
        return self.product(self.product(versor, sign * x), inverse)


def linear(dense, x, weight, bias):
    matrices = weight if weight.dim() == 2 else dense.by_blade(weight)
    y = torch.einsum("bmi,nm->bni" if weight.dim() == 2 else "bmi,nmi->bni", x, matrices)
    if bias is not None:
        y = y + bias * (torch.arange(x.shape[-1]) == 0)
    return y


def silu(dense, x, a, b):
    q = dense.quadratic(x)
    invariants = torch.cat([x[..., :1], q[..., 1:]], dim=-1)
    return x * dense.by_blade(torch.sigmoid(a * invariants + b))


def norm(q):
    return (q * q + 1e-16) ** 0.25


def normalization(dense, x, a):
    factor = torch.sigmoid(a) * (norm(dense.quadratic(x)) - 1) + 1 + 1e-6
    return x / dense.by_blade(factor)


def layer_norm(dense, x, a):
    size = norm(dense.quadratic(x).sum(-1, keepdim=True)).mean(dim=1, keepdim=True)
    return a[..., None] * x / (size + 1e-6)


def steerable(dense, x, module):
    right = linear(dense, x, module.linear_right.weight, None)
    if hasattr(module.normalization, "a"):
        right = normalization(dense, right, module.normalization.a)
    weights = dense.weights(module.weight)
    indices = "bni,nijk,bnk->bnj" if module.weight.dim() == 2 else "bni,mnijk,bnk->bmj"
    y = torch.einsum(indices, x, weights, right)
    if not module.include_first_order:
        return y
    return (linear(dense, x, module.linear_left.weight, module.linear_left.bias) + y) / math.sqrt(2)


def block(dense, x, module):
    first, activation, product, last = module
    x = silu(dense, linear(dense, x, first.weight, first.bias), activation.a, activation.b)
    return layer_norm(dense, steerable(dense, x, product), last.a)
