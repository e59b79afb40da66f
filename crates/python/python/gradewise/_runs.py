"""Training runs: started from Python, watched, and read back."""

from __future__ import annotations

import html
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional, Union

from gradewise import _core
from gradewise._errors import RunError
from gradewise._program import assignments, call

StrPath = Union[str, "os.PathLike[str]"]
Watch = Union[bool, Callable[[str], None]]


class Plot:
    """A plot of a run, which notebooks show.

    Attributes:
        name: the name of its file without the ending.
        path: its file.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        self.path = path

    @property
    def svg(self) -> str:
        """The plot as SVG."""
        return self.path.read_text(encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<plot {self.name}: {self.path}>"


class Plots(Mapping[str, Plot]):
    """The plots of a run by name; ``run.plots.loss`` and ``run.plots["loss"]`` are the same."""

    def __init__(self, folder: Path) -> None:
        self._plots = {path.stem: Plot(path) for path in sorted(folder.glob("*.svg"))}

    def __getitem__(self, name: str) -> Plot:
        try:
            return self._plots[name]
        except KeyError:
            there = ", ".join(self._plots) or "none"
            raise KeyError(f"the run has no plot {name!r}; it has {there}") from None

    def __getattr__(self, name: str) -> Plot:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._plots)

    def __len__(self) -> int:
        return len(self._plots)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._plots]

    def __repr__(self) -> str:
        return f"<plots {', '.join(self)}>"


class Metrics(list[dict[str, Any]]):
    """The records of a run in order: of training steps, of evaluations, and of the end."""

    def columns(self, *names: str) -> dict[str, list[Any]]:
        """Values by name, of the records that have all of these names: ``columns("step", "train_loss")``.

        Raises:
            KeyError: no record has them all; the text lists the names that there are.
        """
        records = [record for record in self if all(name in record for name in names)]
        if not records:
            there = sorted({name for record in self for name in record})
            raise KeyError(f"no record has {' and '.join(names)}; there are {', '.join(there) or 'none'}")
        return {name: [record[name] for record in records] for name in names}


class Run:
    """A training run: its folder, and what is in there.

    Attributes:
        folder: the folder.
        output: what the program printed at the end; empty if the run was opened by its folder.

    Args:
        folder: the folder of an earlier run.

    Raises:
        RunError: the folder holds no run.
    """

    def __init__(self, folder: StrPath) -> None:
        self.folder = Path(folder)
        self.output = ""
        if not any((self.folder / name).exists() for name in ("config.toml", "summary.json", "curve.json")):
            raise RunError(f"{self.folder} holds no run: there is no config.toml")

    @property
    def config(self) -> dict[str, Any]:
        """The settings that the run resolved to, by section."""
        return json.loads(_core.toml_to_json((self.folder / "config.toml").read_text(encoding="utf-8")))

    @property
    def about(self) -> dict[str, Any]:
        """What the run is: task, preset and settings that differ from it, commands, machines, measures (run.json).

        Empty for folders of several runs, and of earlier versions.
        """
        path = self.folder / "run.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    @property
    def page(self) -> Path:
        """The page about the run, for a browser."""
        return self.folder / "report.html"

    @property
    def metrics(self) -> Metrics:
        """The records of the run so far."""
        path = self.folder / "metrics.jsonl"
        if not path.exists():
            return Metrics()
        lines = path.read_text(encoding="utf-8").splitlines()
        return Metrics(json.loads(line) for line in lines if line)

    @property
    def result(self) -> dict[str, Any]:
        """The evaluation on the test split at the end of the run, such as ``{"test_mse": 0.0035, "step": 131072}``.

        Raises:
            RunError: the run has not ended.
        """
        for record in reversed(self.metrics):
            if any(name.startswith("test_") for name in record):
                return record
        raise RunError(f"{self.folder} has no result yet: its run has not ended")

    @property
    def summary(self) -> Optional[dict[str, Any]]:
        """What several seeds came to; None for a run of one."""
        path = self.folder / "summary.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    @property
    def runs(self) -> dict[str, Run]:
        """The runs that this one is made of, such as those of several seeds, by the names of their folders."""
        folders = sorted(path.parent for path in self.folder.glob("*/config.toml"))
        return {folder.name: Run(folder) for folder in folders}

    @property
    def checkpoint(self) -> Path:
        """The weights and the state of training."""
        return self.folder / "checkpoint.safetensors"

    @property
    def best(self) -> Optional[Path]:
        """The weights that were best on the validation split, if the run keeps them."""
        path = self.folder / "best.safetensors"
        return path if path.exists() else None

    @property
    def plots(self) -> Plots:
        """The plots."""
        return Plots(self.folder)

    def evaluate(self, split: str = "test", **options: Any) -> dict[str, Any]:
        """As :func:`evaluate`, of the checkpoint of this run."""
        return evaluate(self.checkpoint, split, **options)

    def __repr__(self) -> str:
        about = self.about
        facts = [f"{about['task']}, {about['steps']} steps"] if about else []
        for first in about.get("measures", [])[:1]:
            facts.append(f"test_{first['key']} {first['value']:.4g}" if first["value"] is not None else "diverged")
        return f"<run {self.folder}{': ' if facts else ''}{', '.join(facts)}>"

    def _repr_html_(self) -> str:
        parts = [f"<p>run <code>{html.escape(str(self.folder))}</code></p>"]
        if self.output:
            parts.append(f"<pre>{html.escape(self.output.strip())}</pre>")
        if "loss" in self.plots:
            parts.append(f'<div style="max-width: 100%; overflow-x: auto">{self.plots["loss"].svg}</div>')
        return "".join(parts)


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    return bool(shell) and shell.__class__.__name__ == "ZMQInteractiveShell"


def _line() -> Callable[[str], None]:
    """Shows the last line alone, in a notebook."""
    from IPython.display import display

    handle = display({"text/plain": ""}, raw=True, display_id=True)

    def show(text: str) -> None:
        handle.update({"text/plain": text}, raw=True)

    return show


def _watch(progress: Watch) -> Optional[Callable[[str], None]]:
    if callable(progress):
        return progress
    if not progress:
        return None
    return _line() if _in_notebook() else lambda text: print(text, file=sys.stderr, flush=True)


def _new_folder(task: str) -> Path:
    """A new folder runs/TASK-N with the first free number, as the program itself makes it."""
    number = 1
    while True:
        folder = Path("runs") / f"{task}-{number}"
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            number += 1


def train(
    task: str,
    preset: Optional[str] = None,
    device: Optional[str] = None,
    out: Optional[StrPath] = None,
    *,
    dtype: Optional[str] = None,
    config: Optional[StrPath] = None,
    resume: Optional[StrPath] = None,
    seeds: Union[int, Sequence[int], None] = None,
    devices: Union[int, str, None] = None,
    progress: Watch = True,
    options: Sequence[str] = (),
    **settings: Any,
) -> Run:
    """Trains a model: the program's ``gradewise train TASK``, in a process of its own.

    ::

        run = gradewise.train("nbody", preset="paper", device="cuda", train={"steps": 2000})
        run.result["test_mse"], run.plots["loss"]

    Args:
        task: "nbody", "hulls", or another one of ``gradewise train --help``.
        preset: a name for settings, such as "quick" or "paper".
        device: "cpu", "cuda" or "cuda:0". A device that is not there is an error.
        out: the folder of the run; ``runs/TASK-N`` with the first free N if it is left out.
        dtype: "f64", "f32", "bf16" or "f16".
        config: a TOML file of settings.
        resume: the folder of a run to go on with.
        seeds: several runs, as a number of seeds or as a list of them.
        devices: processes on this host, one for each device: a number or "auto".
        progress: whether progress is shown, on the standard error or in one line of a notebook; or a function that takes each line.
        options: other options of the program, such as ``["--fit-memory"]``.
        settings: settings by section, such as ``train={"steps": 2000}`` or ``**{"train.steps": 2000}``.

    Returns:
        The run.

    Raises:
        RunError: the program failed; the text is its own. ``status``, ``output`` and ``folder`` tell more.
        KeyboardInterrupt: after the run has written a checkpoint to go on from; a second Ctrl-C ends it at once.
    """
    folder, is_new = (
        (Path(resume), False)
        if resume is not None
        else (Path(out), False)
        if out is not None
        else (
            _new_folder(task),
            True,
        )
    )
    words = ["train", task, "--resume" if resume is not None else "--out", str(folder)]
    for name, value in [
        ("preset", preset),
        ("device", device),
        ("dtype", dtype),
        ("config", config),
        ("devices", devices),
    ]:
        if value is not None:
            words += [f"--{name}", str(value)]
    if seeds is not None:
        words += ["--seeds", str(seeds) if isinstance(seeds, int) else ",".join(str(seed) for seed in seeds)]
    try:
        output = call([*words, *options, *assignments(settings)], _watch(progress))
    except RunError as error:
        error.folder = folder
        raise
    finally:
        if is_new and not any(folder.iterdir()):
            folder.rmdir()
    run = Run(folder)
    run.output = output
    return run


def evaluate(
    checkpoint: Union[StrPath, Run, Sequence[Union[StrPath, Run]]],
    split: str = "test",
    device: Optional[str] = None,
    *,
    dtype: Optional[str] = None,
    config: Optional[StrPath] = None,
    progress: Watch = False,
    options: Sequence[str] = (),
    **settings: Any,
) -> dict[str, Any]:
    """The error of a checkpoint on a split: the program's ``gradewise eval``.

    Args:
        checkpoint: a file of weights, or a run; several for the mean of what they predict.
        split: "train", "valid" or "test".
        device: "cpu", "cuda" or "cuda:0"; that of the run if it is left out.
        dtype: "f64", "f32", "bf16" or "f16"; that of the run if it is left out.
        config: a TOML file of settings, over those beside the checkpoint.
        progress: as in :func:`train`.
        options: other options of the program.
        settings: as in :func:`train`.

    Returns:
        The measures by name, such as ``{"mse": 0.0035, "samples": 2000, "split": "test", "step": 131072, "asymmetry": 1e-6}``.

    Raises:
        RunError: the program failed; the text is its own.
    """
    given = checkpoint if isinstance(checkpoint, (list, tuple)) else [checkpoint]
    words = ["eval", "--json", "--split", split]
    for one in given:
        words += ["--checkpoint", str(one.checkpoint if isinstance(one, Run) else one)]
    for name, value in [("device", device), ("dtype", dtype), ("config", config)]:
        if value is not None:
            words += [f"--{name}", str(value)]
    printed = call([*words, *options, *assignments(settings)], _watch(progress))
    return json.loads(printed)
