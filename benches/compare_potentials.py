#!/usr/bin/env python3
"""Potentials on the same frames: `gradewise train potential` beside mace-torch and nequip.

    python3 benches/compare_potentials.py --program PROGRAM --frames ethanol.xyz --device cuda --sizes 50 200 1000 --seeds 0 1 2
    python3 benches/compare_potentials.py --program PROGRAM --device cuda --motion ethanol.xyz aspirin.xyz silicon-64.xyz silicon-216.xyz
    python3 benches/compare_potentials.py --program PROGRAM --self-test ethanol.xyz          the CPU, ten frames, a minute

The two published packages want different versions of e3nn: `--mace FOLDER` and `--nequip FOLDER` name folders of packages (`pip install
--target FOLDER`) that come first in PYTHONPATH of their processes. A package that cannot be imported is left out, with a line that says so.

Frames are extended XYZ in order of time. Of `--frames`, the first 70 % are for training, of which those for a size are equally spaced; the
next 12 % are watched during training, and the last 12 % reported on; 3 % before each are left out, because neighbours in time are nearly
one frame. All see the same files, the same cutoff and the same number of steps of as many frames (`--steps`, `--batch`; `--mace-steps` and
`--nequip-steps` for others). Seconds are those of the whole process of training: start, reading, compilation and validation with it.

`--motion` times energy and forces of the last frame of each file, by models that two steps of training made, for their speed does not
depend on their weights: `with neighbours` is the calculator for ase from positions in memory, moved before each call, to forces in
memory; `model alone` has its neighbours found before; both are medians of `--repeats` calls. `md` is a whole step of `gradewise md`: the
difference of the times of eleven times as many steps and of as many. Peak memory is that of the allocator on the device, of all of the
process on the CPU. One line of JSON for each result.
"""

import argparse
import importlib.util
import json
import os
import resource
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PACKAGES = {"mace": "mace", "nequip": "nequip"}
SYMBOLS = "H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar".split()


def blocks(path):
    """The frames of a file as text, with the names of labels that all three packages read."""
    lines, found = Path(path).read_text().splitlines(), []
    while lines:
        size = int(lines[0]) + 2
        frame, lines = lines[:size], lines[size:]
        for name in ("energy=", "forces:R:3", "stress="):
            frame[1] = frame[1].replace(f"REF_{name}", name).replace(name, f"REF_{name}")
        found.append("\n".join(frame) + "\n")
    return found


def splits(frames, size, few=False):
    """Train, valid and test; `few` is without gaps, for what is not measured by its errors."""
    if few:
        return frames[:size], frames[:2], frames[:2]
    count = len(frames)
    edges = [int(part * count) for part in (0.7, 0.73, 0.85, 0.88)]
    if size > edges[0]:
        sys.exit(f"{count} frames have {edges[0]} to train on, and {size} were asked for: draw more or set --sizes")
    train = [frames[k * edges[0] // size] for k in range(size)]
    return train, frames[edges[1] : edges[2]], frames[edges[3] :]


def write_splits(folder, parts):
    folder.mkdir(parents=True)
    for name, part in zip(("train", "valid", "test"), parts):
        (folder / f"{name}.xyz").write_text("".join(part))


def species(folder):
    """Symbols by the Python of the caller, without a package for frames."""
    found = set()
    for block in blocks(folder / "train.xyz"):
        found |= {line.split()[0] for line in block.splitlines()[2:]}
    return sorted(found, key=SYMBOLS.index)


# ---- gradewise: the program


def ours_train(job, out):
    folder, settings = Path(job["data"]), job["settings"].get("ours", [])
    counts = [f"data.{name}={len(blocks(folder / f'{name}.xyz'))}" for name in ("train", "valid", "test")]
    steps = job["steps"]
    words = [job["program"], "train", "potential", "--data", folder, *counts, "--out", out / "run", "--device", job["device"]]
    words += ["--seed", job["seed"], f"train.steps={steps}", f"train.batch_size={job['batch']}", f"model.cutoff={job['cutoff']}"]
    words += [f"data.cutoff={job['cutoff']}", f"train.eval_every={max(1, steps // 8)}", f"train.checkpoint_every={steps}", *settings]
    began = time.perf_counter()
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    seconds = time.perf_counter() - began
    about = json.loads((out / "run" / "run.json").read_text())
    last = json.loads((out / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    measures = {one["key"]: one["value"] for one in about["measures"]}
    return {
        "force_mae": measures["force_mae"],
        "energy_mae": measures["energy_mae_atom"],
        "seconds": seconds,
        "seconds_of_steps": last["seconds"],
        "parameters": about["parameters"],
        "peak_bytes": last["memory"]["peak"],
    }


def ours_motion(job, out):
    ours_train(job, out)
    checkpoint = out / "run" / "checkpoint.safetensors"
    start = out / "start.xyz"
    start.write_text(blocks(Path(job["data"]) / "train.xyz")[-1])
    result = {}
    for dtype in ("f32", "f64"):
        total = {}
        for steps in (job["repeats"], 11 * job["repeats"]):
            # 1 K keeps atoms in place: the weights are arbitrary.
            words = [job["program"], "md", "--checkpoint", checkpoint, "--input", start, "--steps", steps, "--dt", "0.01", "--json"]
            words += ["--temperature", "1", "--device", job["device"], "--dtype", dtype, "--out", out / f"{dtype}-{steps}", "--every", steps]
            done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(done.stderr[-2000:])
            total[steps] = json.loads(done.stdout)["step_ms"] * steps
        # Without the first step, in which kernels are loaded and the step is captured.
        result[f"md_ms_{dtype}"] = (max(total.values()) - min(total.values())) / (10 * job["repeats"])
    if importlib.util.find_spec("gradewise") is None or importlib.util.find_spec("ase") is None:
        return result | {"note": "gradewise.ase is not installed: no calculator timed"}
    from gradewise.ase import Calculator

    return result | {"with_neighbours_ms": calculator_ms(job, Calculator(out / "run", device=job["device"], dtype="f32"))}


# ---- the published packages, each in a process of its own


def calculator_ms(job, calculator):
    import ase.io
    import numpy

    atoms = ase.io.read(Path(job["data"]) / "train.xyz", "-1")
    start, random = atoms.get_positions(), numpy.random.default_rng(0)
    atoms.calc = calculator
    times = []
    for at in range(job["repeats"] + 5):
        atoms.set_positions(start + 0.01 * random.standard_normal(start.shape))
        began = time.perf_counter()
        atoms.get_forces()
        if at >= 5:
            times.append(time.perf_counter() - began)
    return 1e3 * statistics.median(times)


def device_ms(job, work):
    import torch

    times = []
    for at in range(job["repeats"] + 5):
        began = time.perf_counter()
        work()
        if job["device"] == "cuda":
            torch.cuda.synchronize()
        if at >= 5:
            times.append(time.perf_counter() - began)
    return 1e3 * statistics.median(times)


def calculator_errors(job, calculator):
    """MAE of forces in meV/Å and of energies in meV/atom, on the test split."""
    import ase.io
    import numpy

    forces, energies = [], []
    for atoms in ase.io.read(Path(job["data"]) / "test.xyz", ":"):
        labels = numpy.array(atoms.arrays["REF_forces"]), float(atoms.info["REF_energy"])
        atoms.calc = calculator
        forces.append(numpy.abs(atoms.get_forces() - labels[0]).mean())
        energies.append(abs(atoms.get_potential_energy() - labels[1]) / len(atoms))
    return {"force_mae": 1e3 * float(numpy.mean(forces)), "energy_mae": 1e3 * float(numpy.mean(energies))}


def peak_bytes(job):
    import torch

    if job["device"] == "cuda":
        return torch.cuda.max_memory_allocated()
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def epochs(job):
    """As many passes over the training frames as make the steps."""
    count = len(blocks(Path(job["data"]) / "train.xyz"))
    return max(1, round(job["steps"] * job["batch"] / count))


def mace_model(job, out):
    import torch
    from mace import tools
    from mace.cli.run_train import run

    data, passes = Path(job["data"]), epochs(job)
    words = ["--name", "mace", "--work_dir", out, "--train_file", data / "train.xyz", "--valid_file", data / "valid.xyz", "--E0s", "average"]
    words += ["--energy_key", "REF_energy", "--forces_key", "REF_forces", "--stress_key", "REF_stress", "--r_max", job["cutoff"]]
    words += ["--batch_size", job["batch"], "--max_num_epochs", passes, "--eval_interval", max(1, passes // 8), "--device", job["device"]]
    words += ["--seed", job["seed"], "--default_dtype", "float32", "--ema", "--ema_decay", "0.99", "--amsgrad", "--error_table", "PerAtomMAE"]
    words += ["--plot", "False", *job["settings"].get("mace", [])]
    began = time.perf_counter()
    run(tools.build_default_arg_parser().parse_args([str(word) for word in words]))
    seconds = time.perf_counter() - began
    path = out / "mace.model"
    model = torch.load(path, map_location=job["device"], weights_only=False)
    return path, model, seconds


def mace_train(job, out):
    from mace.calculators import MACECalculator

    path, model, seconds = mace_model(job, out)
    peak = peak_bytes(job)
    calculator = MACECalculator(model_paths=str(path), device=job["device"], default_dtype="float32")
    parameters = sum(weight.numel() for weight in model.parameters())
    return calculator_errors(job, calculator) | {"seconds": seconds, "parameters": parameters, "peak_bytes": peak}


def mace_motion(job, out):
    import ase.io
    from mace.calculators import MACECalculator

    path, _, _ = mace_model(job, out)
    result = {}
    for dtype in ("float32", "float64"):
        calculator = MACECalculator(model_paths=str(path), device=job["device"], default_dtype=dtype)
        result[f"with_neighbours_ms_{dtype}"] = calculator_ms(job, calculator)
        batch = calculator._atoms_to_batch(ase.io.read(Path(job["data"]) / "train.xyz", "-1"))
        model = calculator.models[0]

        def work():
            model(calculator._clone_batch(batch).to_dict(), compute_stress=False)

        result[f"model_alone_ms_{dtype}"] = device_ms(job, work)
    return result | {"peak_bytes": peak_bytes(job)}


def nequip_checkpoint(job, out):
    """`nequip-train` with the settings of its tutorial, l_max 2 and 32 features."""
    data, symbols, passes = Path(job["data"]), species(Path(job["data"])), epochs(job)
    loader = {"_target_": "torch.utils.data.DataLoader", "batch_size": job["batch"]}
    metrics = {"_target_": "nequip.train.EnergyForceMetrics", "coeffs": {"total_energy_mae": 1.0, "forces_mae": 1.0}}
    transforms = [
        {"_target_": "nequip.data.transforms.ChemicalSpeciesToAtomTypeMapper", "model_type_names": symbols},
        {"_target_": "nequip.data.transforms.NeighborListTransform", "r_max": job["cutoff"]},
    ]
    config = {
        "run": ["train"],
        "data": {
            "_target_": "nequip.data.datamodule.ASEDataModule",
            "seed": job["seed"],
            "train_file_path": str(data / "train.xyz"),
            "val_file_path": str(data / "valid.xyz"),
            "key_mapping": {"REF_energy": "total_energy", "REF_forces": "forces"},
            "transforms": transforms,
            "train_dataloader": loader | {"shuffle": True},
            "val_dataloader": loader,
            "stats_manager": {
                "_target_": "nequip.data.CommonDataStatisticsManager",
                "type_names": symbols,
                "dataloader_kwargs": {"batch_size": job["batch"]},
            },
        },
        "trainer": {
            "_target_": "lightning.Trainer",
            "accelerator": "gpu" if job["device"] == "cuda" else "cpu",
            "devices": 1,
            "max_epochs": passes,
            "check_val_every_n_epoch": max(1, passes // 8),
            "enable_progress_bar": False,
            "logger": False,
            "callbacks": [{"_target_": "lightning.pytorch.callbacks.ModelCheckpoint", "dirpath": str(out), "filename": "last", "save_last": True}],
        },
        "training_module": {
            "_target_": "nequip.train.EMALightningModule",
            "ema_decay": 0.99,
            "loss": {
                "_target_": "nequip.train.EnergyForceLoss",
                "per_atom_energy": True,
                "coeffs": {"total_energy": 1.0, "forces": 1.0},
            },
            "val_metrics": metrics,
            "optimizer": {"_target_": "torch.optim.Adam", "lr": 0.01},
            "model": {
                "_target_": "nequip.model.NequIPGNNModel",
                "seed": job["seed"],
                "model_dtype": "float32",
                "type_names": symbols,
                "r_max": job["cutoff"],
                "l_max": 2,
                "parity": True,
                "num_layers": 3,
                "num_features": 32,
                "radial_mlp_depth": 1,
                "radial_mlp_width": 64,
                "avg_num_neighbors": "${training_data_stats:per_type_num_neighbors_mean}",
                "per_type_energy_shifts": "${training_data_stats:per_atom_energy_mean}",
                "per_type_energy_scales": "${training_data_stats:per_type_forces_rms}",
            },
        },
    }
    # JSON is YAML.
    (out / "config.yaml").write_text(json.dumps(config))
    words = [sys.executable, "-m", "nequip.scripts.train", "-cp", str(out), "-cn", "config", *job["settings"].get("nequip", [])]
    began = time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, cwd=out)
    if done.returncode:
        raise RuntimeError((done.stdout + done.stderr)[-2000:])
    return out / "last.ckpt", time.perf_counter() - began


def nequip_calculator(job, path):
    from nequip.integrations.ase import NequIPCalculator

    # Without the compilation for a device that `nequip-compile` makes, which needs a C++ compiler.
    return NequIPCalculator._from_saved_model(str(path), device=job["device"])


def nequip_train(job, out):
    path, seconds = nequip_checkpoint(job, out)
    calculator = nequip_calculator(job, path)
    parameters = sum(weight.numel() for weight in calculator.model.parameters())
    return calculator_errors(job, calculator) | {"seconds": seconds, "parameters": parameters}


def nequip_motion(job, out):
    import ase.io

    path, _ = nequip_checkpoint(job, out)
    calculator = nequip_calculator(job, path)
    result = {"with_neighbours_ms": calculator_ms(job, calculator)}
    data = calculator.atoms_to_data(ase.io.read(Path(job["data"]) / "train.xyz", "-1"))
    return result | {"model_alone_ms": device_ms(job, lambda: calculator.call_model(dict(data))), "peak_bytes": peak_bytes(job)}


WORK = {
    "ours": (ours_train, ours_motion),
    "mace": (mace_train, mace_motion),
    "nequip": (nequip_train, nequip_motion),
}


def work(text):
    """In a process of its own: does a job, and prints its result as the last line."""
    job = json.loads(text)
    package = PACKAGES.get(job["package"])
    if package is not None and importlib.util.find_spec(package) is None:
        print(json.dumps({"skipped": f"{package} cannot be imported"}))
        return
    with tempfile.TemporaryDirectory() as folder:
        result = WORK[job["package"]][job["motion"]](job, Path(folder))
    print("\n" + json.dumps(result))


def measure(arguments, package, job):
    job = job | {"package": package, "steps": arguments.steps, "batch": arguments.batch, "cutoff": arguments.cutoff}
    job |= {"device": arguments.device, "program": str(Path(arguments.program).resolve()), "repeats": arguments.repeats}
    job["settings"] = {"ours": arguments.ours_settings, "mace": arguments.mace_settings, "nequip": arguments.nequip_settings}
    own = {"mace": arguments.mace_steps, "nequip": arguments.nequip_steps}.get(package)
    job["steps"] = 2 if job["motion"] else own or job["steps"]
    environment = dict(os.environ)
    folder = {"mace": arguments.mace, "nequip": arguments.nequip}.get(package)
    if folder:
        environment["PYTHONPATH"] = os.pathsep.join([str(Path(folder).resolve()), environment.get("PYTHONPATH", "")])
    words = [sys.executable, str(Path(__file__).resolve()), "--work", json.dumps(job)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=arguments.limit)
    except subprocess.TimeoutExpired:
        return {"skipped": f"not done within --limit {arguments.limit} seconds"}
    if done.returncode:
        return {"failed": done.stderr.strip()[-1500:]}
    return {"steps": job["steps"]} | json.loads(done.stdout.strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--work", metavar="JOB", help=argparse.SUPPRESS)
    add("--program", metavar="FILE", help="the program gradewise, built for the device")
    add("--frames", metavar="FILE", help="train on frames of it")
    add("--motion", metavar="FILE", nargs="+", default=[], help="time steps of the last frame of each")
    add("--self-test", metavar="FILE", help="ten frames and a few steps, to see that everything runs")
    add("--packages", nargs="+", choices=tuple(WORK), default=list(WORK))
    add("--mace", metavar="FOLDER", help="packages of mace-torch")
    add("--nequip", metavar="FOLDER", help="packages of nequip")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--sizes", type=int, nargs="+", default=[50, 200, 1000], help="training frames")
    add("--seeds", type=int, nargs="+", default=[0])
    add("--steps", type=int, default=8192)
    add("--mace-steps", type=int)
    add("--nequip-steps", type=int)
    add("--batch", type=int, default=5)
    add("--cutoff", type=float, default=5.0, help="Å")
    add("--repeats", type=int, default=50, help="of what is timed")
    add("--limit", type=float, metavar="SECONDS", help="of each process")
    for name in WORK:
        add(f"--{name}-settings", type=shlex.split, default=[], metavar="WORDS", help=f"passed on: --{name}-settings='WORD WORD'")
    arguments = parser.parse_args()
    if arguments.work:
        return work(arguments.work)
    if not arguments.program or not shutil.which(arguments.program):
        parser.error(f"--program {arguments.program}: there is no such program; cargo build --release --bin gradewise makes it")
    few = arguments.self_test is not None
    if few:
        arguments.frames, arguments.motion = arguments.self_test, [arguments.self_test]
        arguments.sizes, arguments.seeds, arguments.steps, arguments.repeats = [10], [0], 4, 3
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        jobs = []
        for size in arguments.sizes if arguments.frames else []:
            data = Path(folder) / f"train-{size}"
            write_splits(data, splits(blocks(arguments.frames), size, few))
            jobs += [({"frames": size, "seed": seed}, {"data": str(data), "seed": seed, "motion": 0}) for seed in arguments.seeds]
        for at, path in enumerate(arguments.motion):
            data, frames = Path(folder) / f"motion-{at}", blocks(path)
            write_splits(data, splits(frames[-10:], 10, True))
            atoms = int(frames[-1].split("\n", 1)[0])
            jobs.append(({"atoms": atoms, "file": Path(path).name}, {"data": str(data), "seed": 0, "motion": 1}))
        for about, job in jobs:
            for package in arguments.packages:
                result = measure(arguments, package, job)
                failed += "failed" in result
                print(json.dumps({"package": package, "device": arguments.device} | about | result), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
