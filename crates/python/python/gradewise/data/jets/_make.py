"""Drawing a data set with several processes."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal as signals
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Optional, Union

from gradewise import _errors
from gradewise._core import __version__
from gradewise._errors import ArgumentError, DataSetError
from gradewise._program import _environment
from gradewise.data.jets import _blocks, _file
from gradewise.data.jets._card import BLOCKS, SPLITS, Card, differences
from gradewise.data.jets._file import NAMES, File
from gradewise.data.jets._progress import Progress
from gradewise.data.jets._work import generator_of

PYTHIA = "gradewise.data.jets._pythia:Pythia"
Task = tuple[str, int]


def make(
    folder: Union[str, os.PathLike[str]],
    *,
    train: int = 0,
    valid: int = 0,
    test: int = 0,
    card: Optional[Card] = None,
    processes: Optional[int] = None,
    keep_blocks: bool = False,
    progress: Union[bool, Callable[[str], None]] = True,
    generator: str = PYTHIA,
) -> dict[str, Path]:
    """Draws jets and writes ``train.h5``, ``val.h5`` and ``test.h5``, as ``gradewise train lorentz data.source=FOLDER`` reads them.

    The bytes of the files depend on the card, the numbers of jets and the versions of what draws them; not on the processes, and not on
    interruptions. Who asks for more jets gets the same ones first. Blocks that are there are not drawn again: a run that was
    interrupted or killed goes on when it is asked for again.

    Args:
        folder: for the files; made if it is not there.
        train, valid, test: numbers of jets; of splits with none there is no file.
        card: the settings; ``Card()`` if there is none.
        processes: how many draw at the same time; as many as there are processors for this process if None.
        keep_blocks: whether blocks stay when the files are written, so that a larger set can begin with them.
        progress: what happens to lines about the progress: True writes them to the standard error (on a terminal as one line that
            changes), False drops them, and a function is called with each.
        generator: ``MODULE:CLASS`` of another :class:`gradewise.data.jets.Generator`.

    Returns:
        the files by split.

    Raises:
        MissingPackageError: of the extra ``gradewise[jets]``, with the command that installs it.
        ArgumentError: settings that make no sense.
        DataSetError: the folder holds blocks or files of other settings, or the generator failed; blocks that are whole are kept.
    """
    card = card or Card()
    counts = {"train": train, "valid": valid, "test": test}
    for split, count in counts.items():
        if not 0 <= count <= BLOCKS * card.block:
            raise ArgumentError(f"jets: {count} jets for {split}; 0 to {BLOCKS * card.block} can be drawn")
    if not any(counts.values()):
        raise ArgumentError("jets: no jets were asked for; give numbers of jets for train, valid or test")
    processes = _processors() if processes is None else processes
    if processes < 1:
        raise ArgumentError(f"jets: {processes} processes; at least one must draw")
    source = generator_of(generator, card)
    _file.need("h5py", _file.PURPOSE)
    names = card.classes()
    about = {
        "card": card.as_dict(),
        "versions": {"gradewise": __version__, **source.versions()},
        "settings": {names[c]: source.settings(bool(c)) for c in (0, 1)},
    }
    folder = Path(folder)
    paths = {split: folder / NAMES[split] for split in SPLITS if counts[split]}
    (folder / _blocks.FOLDER).mkdir(parents=True, exist_ok=True)
    with _alone(folder), Progress(progress) as said:
        # Of processes that were killed while they wrote.
        _blocks.remove(folder, [".*.block.*.partial"])
        # All splits first, so that nothing is drawn in vain.
        missing = {
            split: path for split, path in paths.items() if not _is_there(path, card, split, counts[split], about)
        }
        tasks: list[Task] = []
        for split in missing:
            kept = 0
            for block in range(-(-counts[split] // card.block)):
                if _kept(folder, split, block, card, about) is None:
                    tasks.append((split, block))
                else:
                    kept += card.block
            if kept:
                said.line(f"{split}: {kept} jets are there already")
        if tasks:
            said.begin(len(tasks) * card.block)
            _draw(folder, card, generator, about, tasks, processes, said)
        for split, path in missing.items():
            said.line(f"writing {path}")
            _assemble(folder, path, card, split, counts[split], about)
        for split, path in paths.items():
            said.line(f"{path}: {counts[split]} jets, {path.stat().st_size / 1e6:.1f} MB")
        if not keep_blocks:
            _blocks.remove(folder, ["*.block", "process-*.log", "lock"])
            # What is not ours stays.
            with contextlib.suppress(OSError):
                (folder / _blocks.FOLDER).rmdir()
    return paths


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keeps a second run away from the folder, where the system has locks that end with their process."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with open(folder / _blocks.FOLDER / "lock", "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DataSetError(
                f"jets: another process draws jets into {folder}; let it end, or take another folder"
            ) from None
        yield


def _is_there(path: Path, card: Card, split: str, count: int, about: dict[str, Any]) -> bool:
    """Whether the file is written already.

    Raises:
        DataSetError: there is another file in its place, which is not overwritten.
    """
    if not path.exists():
        return False
    with File(path) as file:
        record = file.record or {}
    wanted = _file.record_of(card, split, count, about["versions"], about["settings"])
    found = {**record, **record.get("card", {}), **record.get("versions", {})}
    expected = {**wanted, **wanted["card"], **wanted["versions"]}
    differing = differences({name: found.get(name) for name in expected}, expected)
    if differing:
        raise DataSetError(
            f"jets: {path} is there, and is another file (there, asked for): {differing[:600]}. Nothing was changed: "
            "take another folder, or remove it"
        )
    return True


def _kept(folder: Path, split: str, block: int, card: Card, about: dict[str, Any]) -> Optional[Any]:
    path = _blocks.path_of(folder, split, block)
    return _blocks.load(path, card, about) if path.exists() else None


def _assemble(folder: Path, path: Path, card: Card, split: str, count: int, about: dict[str, Any]) -> None:
    blocks = range(-(-count // card.block))
    candidates: dict[str, dict[str, int]] = {name: {} for name in card.classes()}

    def jets() -> Iterator[_file.Jets]:
        for block in blocks:
            kept = _kept(folder, split, block, card, about)
            if kept is None:
                raise DataSetError(
                    f"jets: {_blocks.path_of(folder, split, block)} was damaged or removed meanwhile; run the command again"
                )
            for name, reasons in kept[1]["candidates"].items():
                for reason, number in reasons.items():
                    candidates[name][reason] = candidates[name].get(reason, 0) + number
            yield kept[0]

    record = _file.record_of(card, split, count, about["versions"], about["settings"])
    # Filled while the blocks go by, and written after them.
    record["candidates"] = candidates
    _file.write(path, card, split, count, record, jets())


class _Worker:
    """A process that draws blocks, and the thread that hears it."""

    def __init__(
        self, number: int, order: dict[str, Any], answers: queue.Queue[tuple[_Worker, Optional[dict[str, Any]]]]
    ) -> None:
        self.log = Path(order["folder"]) / _blocks.FOLDER / f"process-{number}.log"
        self.task: Optional[Task] = None
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gradewise.data.jets._work"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                # A process draws with one thread.
                env={**_environment(), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                # Ctrl-C is for the process that started it.
                start_new_session=True,
            )
        assert self.process.stdin is not None and self.process.stdout is not None
        self._into, self._out = self.process.stdin, self.process.stdout
        self._write(order)
        threading.Thread(target=self._hear, args=(answers,), daemon=True).start()

    def _write(self, value: Any) -> None:
        # A process that has ended is noticed by whoever hears it.
        with contextlib.suppress(BrokenPipeError):
            self._into.write(json.dumps(value) + "\n")
            self._into.flush()

    def _hear(self, answers: queue.Queue[tuple[_Worker, Optional[dict[str, Any]]]]) -> None:
        for line in self._out:
            try:
                answers.put((self, json.loads(line)))
            except ValueError:
                # What it says makes no sense: nothing that it still draws can be trusted.
                self.process.kill()
                break
        answers.put((self, None))

    def draw(self, task: Task) -> None:
        self.task = task
        self._write(task)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self._out.close()
        with contextlib.suppress(BrokenPipeError):
            self._into.close()

    def ending(self) -> str:
        """How the process ended, for an error."""
        status = self.process.wait()
        how = f"by {signals.Signals(-status).name}" if status < 0 else f"with exit status {status}"
        said = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = f", and said last: {said[-1]}" if said else ""
        return f"a process that drew block {self.task} ended {how}{last}. Its log is {self.log}"


def _draw(
    folder: Path, card: Card, generator: str, about: dict[str, Any], tasks: list[Task], processes: int, said: Progress
) -> None:
    order = {"card": card.as_dict(), "generator": generator, "folder": str(folder.absolute()), "about": about}
    answers: queue.Queue[tuple[_Worker, Optional[dict[str, Any]]]] = queue.Queue()
    waiting = iter(tasks)
    workers: list[_Worker] = []
    try:
        for number, task in zip(range(processes), waiting):
            workers.append(_Worker(number, order, answers))
            workers[-1].draw(task)
        left = len(tasks)
        while left:
            try:
                worker, heard = answers.get(timeout=1)
            except queue.Empty:
                said.drawn(0)
                continue
            if heard is None:
                raise DataSetError(f"jets: {worker.ending()}. Run the command again to go on")
            if "error" in heard:
                kind = getattr(_errors, heard["kind"], DataSetError)
                raise kind(heard["error"])
            if "drawn" in heard:
                said.drawn(heard["drawn"])
            if "done" in heard:
                left -= 1
                worker.task = None
                further = next(waiting, None)
                if further is not None:
                    worker.draw(further)
    except KeyboardInterrupt:
        said.line("interrupted; whole blocks are kept, and the same command goes on from there")
        raise
    finally:
        for worker in workers:
            worker.stop()
