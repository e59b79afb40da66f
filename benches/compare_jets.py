"""Taggers of jets trained on the same files for the same time: published networks in PyTorch, and those of `gradewise train lorentz`.

    pip install lgatr==2.0.0 torch h5py
    git clone https://github.com/sdogsq/LorentzNet-release
    python benches/compare_jets.py top-jets --seconds 600 --seeds 0 1 2 --device cuda --lorentznet LorentzNet-release

The folder holds train.h5, val.h5 and test.h5 as `python -m gradewise.data.jets make` writes them, or the published ones. Every network gets the
same jets, the same particles of each, batches of as many jets of like lengths, so many seconds of training with a linear warm-up in the first
2.5% and a cosine to zero, and float32. Of PyTorch, batches are made before the clock starts; gradewise makes them meanwhile. Sizes, rates and
inputs of the published networks are those of their publications, as far as these are in their code: `--size small` makes all of them a few
thousand parameters, for a trial on a CPU. `lgatr-accelerated` and `slim-accelerated` are the published networks after
`gradewise.torch.accelerate`. Without --lorentznet that network is left out. What is printed is a table in Markdown; --json writes
all numbers. Background rejections have the binomial error of one test set; with several seeds, means and sample standard deviations.
"""

import argparse
import importlib.util
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np
import torch

FILES = {"train": "train.h5", "test": "test.h5"}
# Blocks, multivectors or vectors, scalars, heads; LorentzNet's blocks and width.
SIZES = {
    "published": {"lgatr": (12, 16, 32, 8), "slim": (12, 32, 96, 8), "lorentznet": (6, 72)},
    "small": {"lgatr": (2, 4, 8, 2), "slim": (2, 8, 16, 4), "lorentznet": (3, 16)},
}
# Rates, decay and dropout: arXiv:2411.00446, arXiv:2512.17011, arXiv:2201.08187.
SETTINGS = {"lgatr": (3e-4, 0.2, None), "slim": (3e-4, 0.2, None), "lorentznet": (1e-3, 1e-2, 0.2)}
# The published networks, whose blocks `gradewise.torch.accelerate` replaces.
ACCELERATED = {f"{name}-accelerated": name for name in ("lgatr", "slim")}
OURS = {"pairs": ["--preset", "pairs"], "messages": ["model.kind=messages", "data.multiple=8"]}
EVALUATED = 256


def read(path, jets, particles):
    """Four-momenta [jets, particles, 4] in float64, those of largest transverse momentum first, and classes."""
    with h5py.File(path) as file:
        rows = file["table/table"][:jets]
        if "E_0" in rows.dtype.names:
            count = sum(name.startswith("E_") for name in rows.dtype.names)
            columns = [rows[f"{axis}_{k}"] for k in range(count) for axis in ("E", "PX", "PY", "PZ")]
            momenta, labels = np.stack(columns, axis=1), rows["is_signal_new"]
        else:
            # pandas keeps columns of a type together, in their order.
            floats = next(name for name in rows.dtype.names if rows[name].dtype.kind == "f" and rows[name].ndim == 2)
            integers = next(name for name in rows.dtype.names if rows[name].dtype.kind == "i" and rows[name].ndim == 2)
            momenta, labels = rows[floats][:, : rows[floats].shape[1] // 4 * 4], rows[integers][:, -1]
            momenta = momenta[:, :800]
    momenta = momenta.reshape(len(labels), -1, 4).astype(np.float64)
    order = np.argsort(-np.hypot(momenta[..., 1], momenta[..., 2]), axis=1, kind="stable")
    momenta = np.take_along_axis(momenta, order[..., None], axis=1)[:, :particles]
    return momenta, np.asarray(labels).astype(np.int64).reshape(-1)


def batches(momenta, labels, size, device, rng):
    """Batches of jets of like lengths, padded to their longest, in any order; the last, incomplete one is left out when `rng` is given."""
    lengths = (momenta[..., 0] > 0).sum(axis=1)
    order = np.argsort(lengths, kind="stable")
    if rng is not None:
        order = rng.permutation(len(lengths))
        order = order[: len(order) // size * size]
        pools = [pool[np.argsort(lengths[pool], kind="stable")] for pool in np.array_split(order, max(1, len(order) // (64 * size)))]
        order = np.concatenate(pools)
    groups = [order[start : start + size] for start in range(0, len(order), size)]
    if rng is not None:
        rng.shuffle(groups)
    for group in groups:
        some = torch.from_numpy(momenta[group, : max(1, lengths[group].max())]).to(torch.float32)
        yield some.to(device), torch.from_numpy(labels[group]).to(device)


def inner(a, b):
    return a[..., 0] * b[..., 0] - (a[..., 1:] * b[..., 1:]).sum(-1)


class Transformer(torch.nn.Module):
    """L-GATr or L-GATr-slim: particles and their jet as vectors, in units of the jet's mass; the mean of a scalar of each particle."""

    def __init__(self, name, size):
        super().__init__()
        import lgatr

        blocks, vectors, scalars, heads = size
        self.embed, self.is_slim = lgatr.embed_vector, name == "slim"
        common = dict(num_blocks=blocks, in_s_channels=2, hidden_s_channels=scalars)
        if self.is_slim:
            self.net = lgatr.LGATrSlim(
                in_v_channels=2, out_v_channels=1, hidden_v_channels=vectors, out_s_channels=1, num_heads=heads, **common
            )
        else:
            self.net = lgatr.LGATr(
                in_mv_channels=2, out_mv_channels=1, hidden_mv_channels=vectors, out_s_channels=1,
                attention={"num_heads": heads}, mlp={}, **common,
            )

    def forward(self, momenta):
        there = momenta[..., 0] > 0
        jet = momenta.sum(1, keepdim=True)
        mass = inner(jet, jet).clamp(min=1e-6).sqrt()
        scaled, axis = momenta / mass[..., None], (jet / mass[..., None]).expand_as(momenta)
        scalars = torch.stack([2 * inner(scaled, axis), (mass / 100).log().expand_as(there)], dim=-1)
        vectors = torch.stack([scaled, axis], dim=-2)
        inputs = vectors if self.is_slim else self.embed(vectors)
        mask = there[:, None, None, :].expand(-1, 1, there.shape[1], -1)
        _, scalars = self.net(inputs, scalars, attn_mask=mask)
        odds = (scalars[..., 0] * there).sum(1) / there.sum(1)
        return torch.stack([torch.zeros_like(odds), odds], dim=1)


class LorentzNet(torch.nn.Module):
    """LorentzNet of the file of its authors, with two beams beside the particles, as they train it."""

    def __init__(self, folder, size, dropout):
        super().__init__()
        file = folder / "models.py"
        spec = importlib.util.spec_from_file_location("lorentznet_models", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        blocks, width = size
        self.psi = module.psi
        self.net = module.LorentzNet(n_scalar=2, n_hidden=width, n_class=2, dropout=dropout, n_layers=blocks, c_weight=5e-3)

    def forward(self, momenta):
        jets = len(momenta)
        beams = momenta.new_tensor([[math.sqrt(2), 0, 0, 1], [math.sqrt(2), 0, 0, -1]]).expand(jets, 2, 4)
        all_of = torch.cat([beams, momenta], dim=1)
        there = all_of[..., 0] > 0
        nodes = all_of.shape[1]
        flag = torch.zeros_like(there, dtype=momenta.dtype)
        flag[:, 0], flag[:, 1] = 1, -1
        scalars = torch.stack([inner(all_of, all_of).abs().sqrt(), flag], dim=-1)
        pairs = there[:, :, None] & there[:, None, :] & ~torch.eye(nodes, dtype=torch.bool, device=momenta.device)
        jet, first, second = pairs.nonzero(as_tuple=True)
        edges = [jet * nodes + first, jet * nodes + second]
        mask = there.reshape(-1, 1).to(momenta.dtype)
        return self.net(self.psi(scalars).reshape(-1, 2), all_of.reshape(-1, 4), edges, mask, None, nodes)


def network(name, arguments):
    if name in ACCELERATED:
        import gradewise.torch

        made = network(ACCELERATED[name], arguments)
        report = gradewise.torch.accelerate(made)
        if not report.replaced:
            raise SystemExit(f"{name}: nothing was accelerated: {report}")
        return made
    size = SIZES[arguments.size][name]
    if name == "lorentznet":
        return LorentzNet(arguments.lorentznet, size, SETTINGS[name][2])
    return Transformer(name, size)


def measures(scores, labels):
    """Accuracy, AUC, and rejections with their binomial errors, as the program has them."""
    scores, labels = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=bool)
    order = np.argsort(-scores, kind="stable")
    edges = np.append(np.diff(scores[order]) != 0, True)
    signal, background = (np.append(0, np.cumsum(labels[order] == kind)[edges]) for kind in (True, False))
    auc = np.sum(np.diff(background) * (signal[1:] + signal[:-1])) / 2 / signal[-1] / background[-1]
    found = {"accuracy": float(np.mean((scores > 0) == labels)), "auc": float(auc)}
    for percent in (30, 50):
        passed = max(1, background[1:][np.argmax(signal[1:] >= percent / 100 * signal[-1])]) / background[-1]
        found[f"rejection_{percent}"] = 1 / passed
        found[f"rejection_{percent}_error"] = math.sqrt(passed * (1 - passed) / background[-1]) / passed**2
    return found


def train(name, data, arguments, seed):
    torch.manual_seed(seed)
    device, budget = torch.device(arguments.device), arguments.seconds
    model = network(name, arguments).to(device)
    rate, decay, _ = SETTINGS[ACCELERATED.get(name, name)]
    rate = arguments.rate or rate
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)
    loss_of = torch.nn.CrossEntropyLoss()
    rng, steps, spent = np.random.default_rng(seed), 0, 0.0
    model.train()
    while spent < budget:
        # Batches of an epoch are made outside the clock.
        for momenta, labels in list(batches(*data["train"], arguments.batch, device, rng)):
            start, share = time.perf_counter(), spent / budget
            scale = min(1.0, share / 0.025 + 1e-3) * 0.5 * (1 + math.cos(math.pi * share))
            for group in optimizer.param_groups:
                group["lr"] = rate * scale
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(model(momenta), labels)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if device.type == "cuda":
                torch.cuda.synchronize()
            spent, steps = spent + time.perf_counter() - start, steps + 1
            if spent >= budget:
                break
    model.eval()
    scores, labels = [], []
    with torch.no_grad():
        for momenta, classes in batches(*data["test"], EVALUATED, device, None):
            logits = model(momenta).double()
            scores.append((logits[:, 1] - logits[:, 0]).cpu().numpy())
            labels.append(classes.cpu().numpy())
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {"parameters": parameters, "steps": steps, "seconds": spent, **measures(np.concatenate(scores), np.concatenate(labels))}


def ours(name, data, arguments, seed):
    jets = {split: len(labels) for split, (_, labels) in data.items()}
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [
            arguments.program, "train", "lorentz", *OURS[name], "--device", arguments.device, "--seed", str(seed), "--out", str(run),
            f"data.source={arguments.folder}", f"data.train={jets['train']}", "data.valid=64", f"data.test={jets['test']}",
            f"data.particles={arguments.particles}", f"train.batch_size={arguments.batch}", "train.steps=10000000",
            f"train.time_budget={arguments.seconds}", "train.eval_every=0", "train.checkpoint_every=0",
        ]  # fmt: skip
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        about = json.loads((run / "run.json").read_text())
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    end = next(record for record in records if "test_auc" in record)
    found = {key: end[f"test_{key}"] for key in ("accuracy", "auc", "rejection_30", "rejection_30_error", "rejection_50", "rejection_50_error")}
    return {"parameters": about["parameters"], "steps": end["step"], "seconds": end["seconds"], **found}


def row(name, runs, jets):
    def number(key, digits):
        values = [run[key] for run in runs]
        spread = statistics.stdev(values) if len(values) > 1 else runs[0].get(f"{key}_error")
        return f"{statistics.fmean(values):.{digits}f}" + ("" if spread is None else f" ± {spread:.{digits}f}")

    cells = [name, str(jets), f"{statistics.fmean(run['seconds'] for run in runs):.0f}", f"{statistics.fmean(run['steps'] for run in runs):.0f}"]
    cells += [str(runs[0]["parameters"]), number("accuracy", 4), number("auc", 4), number("rejection_30", 0), number("rejection_50", 1)]
    return "| " + " | ".join(cells) + " |"


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="train.h5, val.h5 and test.h5")
    parser.add_argument("--models", nargs="+", default=[*SETTINGS, *OURS], choices=[*SETTINGS, *ACCELERATED, *OURS])
    parser.add_argument("--seconds", type=float, default=600, help="of training, for each network and seed")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jets", type=int, help="to fit; all of the file by default")
    parser.add_argument("--tested", type=int, help="to report; all of the file by default")
    parser.add_argument("--particles", type=int, default=128, help="kept of each jet")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rate", type=float, help="highest learning rate of the published networks, in place of their own")
    parser.add_argument("--size", choices=SIZES, default="published")
    parser.add_argument("--lorentznet", type=Path, metavar="FOLDER", help="with the models.py of its authors")
    parser.add_argument("--program", default="gradewise")
    parser.add_argument("--json", type=Path, help="write all numbers there")
    return parser.parse_args()


def main():
    arguments = parse()
    data = {
        split: read(arguments.folder / file, jets, arguments.particles)
        for (split, file), jets in zip(FILES.items(), (arguments.jets, arguments.tested))
    }
    names = [name for name in arguments.models if name != "lorentznet" or arguments.lorentznet]
    if len(names) < len(arguments.models):
        print("lorentznet: left out; --lorentznet FOLDER says where its models.py is", file=sys.stderr)
    jets, found = len(data["train"][1]), {}
    print("| network | jets | seconds | steps | parameters | accuracy | AUC | rejection at 30% | at 50% |", flush=True)
    print("|---|---|---|---|---|---|---|---|---|")
    for name in names:
        work = ours if name in OURS else train
        found[name] = [work(name, data, arguments, seed) for seed in arguments.seeds]
        print(row(name, found[name], jets), flush=True)
    if arguments.json:
        settings = {key: str(value) for key, value in vars(arguments).items()}
        arguments.json.write_text(json.dumps({"settings": settings, "runs": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
