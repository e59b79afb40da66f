"""Stand-ins for somebody's layers for fields: the published names, attributes and shapes, written with dense tables.

Nothing of gradewise is used, and forward passes are spelled out here, so that tests can edit them.
"""

import itertools
import math

import torch
import torch.nn.functional as F
from torch import nn


def table(squares):
    """The product ``[left, result, right]`` of an algebra whose generators have these squares, a tensor."""
    n = len(squares)
    blades = [b for g in range(n + 1) for b in itertools.combinations(range(n), g)]
    made = torch.zeros(2**n, 2**n, 2**n, dtype=squares.dtype, device=squares.device)
    for (i, a), (k, b) in itertools.product(enumerate(blades), repeat=2):
        sign = (-1) ** sum(x > y for x in a for y in b)
        shared = [squares[x] for x in a if x in b]
        made[i, blades.index(tuple(sorted(set(a) ^ set(b)))), k] = sign * math.prod(shared)
    return made


def kernel(weights, g):
    """Weights that multiply from the right, as the matrix ``[blades·out, blades·in, ...]``."""
    weights = torch.stack(list(weights))
    k = torch.einsum("ijk,ko...->jo...i", table(g.to(weights.dtype)), weights)
    k = k.movedim(-1, 2)
    return len(weights), k.flatten(2, 3).flatten(0, 1)


class _Conv(nn.Module):
    def __init__(self, g, in_channels, out_channels, kernel_size=3, stride=1, padding=0, bias=True):
        super().__init__()
        self.register_buffer("g", torch.tensor(g, dtype=torch.float32))
        n = self.dim = len(g)
        self.n_blades, self.in_channels, self.out_channels = 2**n, in_channels, out_channels
        self.kernel_size, self.stride, self.padding = (kernel_size,) * n, (stride,) * n, (padding,) * n
        self.dilation, self.groups, self._get_kernel = (1,) * n, 1, kernel
        shape = (out_channels, in_channels, *self.kernel_size)
        self.weight = nn.ParameterList([nn.Parameter(torch.randn(shape) / 9) for _ in range(self.n_blades)])
        self.bias = nn.Parameter(torch.randn(self.n_blades, out_channels)) if bias else None

    def forward(self, x):
        blades, weight = self._get_kernel(self.weight, self.g)
        bias = None if self.bias is None else self.bias.view(-1)
        convolve = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[self.dim]
        x = x.movedim(-1, 1).flatten(1, 2)
        y = convolve(x, weight, bias, self.stride, self.padding, self.dilation, self.groups)
        return y.unflatten(1, (blades, -1)).movedim(1, -1)


class CliffordConv1d(_Conv):
    pass


class CliffordConv2d(_Conv):
    pass


class CliffordConv3d(_Conv):
    pass


class CliffordLinear(nn.Module):
    def __init__(self, g, in_channels, out_channels):
        super().__init__()
        self.register_buffer("g", torch.tensor(g, dtype=torch.float32))
        self.n_blades, self.in_channels, self.out_channels = 2 ** len(g), in_channels, out_channels
        self._get_kernel = kernel
        self.weight = nn.Parameter(torch.randn(self.n_blades, out_channels, in_channels))
        self.bias = nn.Parameter(torch.randn(self.n_blades, out_channels))

    def forward(self, x):
        _, weight = self._get_kernel(self.weight, self.g)
        y = F.linear(x.movedim(-1, 1).flatten(1), weight, self.bias.view(-1))
        return y.view(len(x), self.n_blades, -1).movedim(1, -1)


class CliffordSpectralConv2d(nn.Module):
    def __init__(self, g, in_channels, out_channels, modes1, modes2):
        super().__init__()
        self.register_buffer("g", torch.tensor(g, dtype=torch.float32))
        self.n_blades, self.in_channels, self.out_channels = 4, in_channels, out_channels
        self.modes1, self.modes2, self.multiply = modes1, modes2, True
        self.weights = nn.Parameter(torch.randn(4, out_channels, in_channels, 2 * modes1, 2 * modes2))

    def forward(self, x):
        rows, columns = ([*range(m), *range(n - m, n)] for m, n in zip((self.modes1, self.modes2), x.shape[2:4]))
        dual = torch.fft.fft2(torch.complex(x[..., [0, 1]], x[..., [3, 2]]), dim=(2, 3))[:, :, rows][:, :, :, columns]
        parts = torch.stack([dual.real[..., 0], dual.real[..., 1], dual.imag[..., 1], dual.imag[..., 0]], dim=1)
        products = torch.einsum("bixy,oixy->boxy", parts.flatten(1, 2), kernel(self.weights, self.g)[1])
        # Float32, whatever the input is.
        made = torch.zeros(len(x), 4 * self.out_channels, *x.shape[2:4], dtype=torch.float, device=x.device)
        made[:, :, torch.tensor(rows)[:, None], torch.tensor(columns)] = products.float()
        made = made.unflatten(1, (4, -1))
        back = torch.fft.ifft2(torch.complex(made[:, [0, 1]], made[:, [3, 2]]))
        return torch.stack([back.real[:, 0], back.real[:, 1], back.imag[:, 1], back.imag[:, 0]], dim=-1)


class _Norm(nn.Module):
    def __init__(self, g, channels, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True):
        super().__init__()
        self.n_blades, self.channels, self.eps, self.momentum = 2 ** len(g), channels, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        eye = torch.eye(self.n_blades)[..., None].repeat(1, 1, channels)
        self.weight = nn.Parameter(eye.clone()) if affine else None
        self.bias = nn.Parameter(torch.zeros(self.n_blades, channels)) if affine else None
        self.register_buffer("running_mean", torch.zeros(self.n_blades, channels) if track_running_stats else None)
        self.register_buffer("running_cov", eye.clone() if track_running_stats else None)
        self.register_buffer("num_batches_tracked", torch.tensor(0) if track_running_stats else None)

    def whitened(self, x, weight, bias):
        """Cell by cell, as in the published code."""
        channels, axes = x.shape[1], [0, *range(2, x.dim() - 1)]
        shape = (1, channels, *(1,) * (x.dim() - 3))
        if self.training or self.running_mean is None:
            mean = x.mean(dim=axes)
            if self.running_mean is not None:
                self.running_mean += self.momentum * (mean.detach().T - self.running_mean)
        else:
            mean = self.running_mean.T
        x = x - mean.reshape(*shape, -1)
        if self.training or self.running_cov is None:
            rows = x.movedim((1, -1), (0, 1)).flatten(2)
            cov = rows @ rows.mT / rows.shape[-1]
            if self.running_cov is not None:
                self.running_cov += self.momentum * (cov.detach().permute(1, 2, 0) - self.running_cov)
        else:
            cov = self.running_cov.permute(2, 0, 1)
        greatest = cov.amax(dim=(1, 2))[:, None, None]
        upper = torch.linalg.cholesky(cov + self.eps * greatest * torch.eye(self.n_blades, dtype=x.dtype, device=x.device)).mH
        blades = self.n_blades
        y = torch.linalg.solve_triangular(upper.reshape(*shape, blades, blades), x[..., None], upper=True)
        if weight is not None:
            y = weight.permute(2, 0, 1).reshape(*shape, blades, blades) @ y + bias.reshape(*shape, blades, 1)
        return y.squeeze(-1)


class CliffordBatchNorm2d(_Norm):
    def forward(self, x):
        if self.training and self.track_running_stats:
            self.num_batches_tracked += 1
        return self.whitened(x, self.weight, self.bias)


class CliffordGroupNorm2d(_Norm):
    def __init__(self, g, num_groups, channels, affine=True):
        super().__init__(g, channels // num_groups, affine=affine, track_running_stats=False)
        self.num_groups = num_groups

    def forward(self, x):
        rows = x.reshape(1, -1, self.num_groups, *x.shape[2:])
        repeated = (None, None)
        if self.weight is not None:
            repeated = self.weight.repeat(1, 1, len(x)), self.bias.repeat(1, len(x))
        return self.whitened(rows, *repeated).reshape(x.shape)


class Algebra:
    """The published algebra is no module."""

    def __init__(self, metric):
        self.metric = torch.tensor(metric, dtype=torch.float32)
        self.cayley, self.n_blades = table(self.metric), 2 ** len(metric)
        grades = [g for g in range(len(metric) + 1) for _ in range(math.comb(len(metric), g))]
        self.signs = torch.tensor([(-1.0) ** (g * (g - 1) // 2) for g in grades])

    def reverse(self, mv):
        return self.signs.to(mv) * mv

    def embed(self, tensor, blades):
        mv = torch.zeros(*tensor.shape[:-1], self.n_blades, device=tensor.device)
        index = torch.tensor(blades, device=tensor.device).expand(tensor.shape)
        return torch.scatter(mv, -1, index, tensor)


class PGAConjugateLinear(nn.Module):
    def __init__(self, in_features, out_features, algebra, input_blades, action_blades=(0, 5, 6, 7, 8, 9, 10, 15)):
        super().__init__()
        self.in_features, self.out_features, self.algebra = in_features, out_features, algebra
        self.input_blades, self.action_blades = input_blades, action_blades
        self._action = nn.Parameter(torch.randn(out_features, in_features, 8))
        self.weight = nn.Parameter(torch.randn(out_features, in_features))
        self.embed_e0 = nn.Parameter(torch.zeros(in_features, 1))

    def forward(self, input):
        k = self.algebra.embed(self._action, self.action_blades)
        x = self.algebra.embed(input, self.input_blades)
        x[..., 14:15] = self.embed_e0
        cayley = self.algebra.cayley.to(k.device)
        left = torch.einsum("ijk,pqi->pqjk", cayley, k)
        right = torch.einsum("ijk,pqk->pqji", cayley, self.algebra.reverse(k))
        return torch.einsum("oi,oiab,oibc,nic->noa", self.weight, right, left, x)[..., list(self.input_blades)]


class MultiVectorAct(nn.Module):
    def __init__(self, channels, algebra, input_blades, kernel_blades=None, agg="linear"):
        super().__init__()
        self.algebra, self.agg = algebra, agg
        self.input_blades = tuple(input_blades)
        self.kernel_blades = self.input_blades if kernel_blades is None else tuple(kernel_blades)
        self.conv = nn.Conv1d(channels, channels, len(self.kernel_blades), groups=channels)

    def forward(self, input):
        v = self.algebra.embed(input, self.input_blades)
        v = v * torch.sigmoid(self.conv(v[..., self.kernel_blades]))
        return v[..., self.input_blades]
