"""The program in Python's process, and runs that Python starts and reads."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import gradewise as gw
from gradewise import _core
from gradewise._program import assignments, call, launcher

SMALL = {"data": {"source": "simulate", "train": 8, "valid": 8, "test": 8}, "model": {"hidden": 4, "layers": 1}}


def small(steps=3, **train):
    return {**SMALL, "train": {"steps": steps, "batch_size": 4, "log_every": 1, **train}}


def program(*words, **options):
    root = str(Path(gw.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": root}
    return subprocess.Popen(
        [*launcher(), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, **options
    )


def test_the_program_is_the_crates_own():
    process = program("--version")
    out, _ = process.communicate()
    assert process.returncode == 0 and out.strip() == f"gradewise {_core.__version__}"
    process = program("train", "nbdy")
    _, err = process.communicate()
    assert process.returncode == 2 and "nbody" in err
    process = program("eval", "--checkpoint", "there is none")
    _, err = process.communicate()
    assert process.returncode in (1, 2) and err.startswith("error: ")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    lines = []
    run = gw.train("nbody", out=tmp_path_factory.mktemp("runs") / "one", progress=lines.append, **small())
    assert any(line.startswith("step") for line in lines), lines
    return run


def test_a_run_has_what_its_folder_has(run):
    assert run.checkpoint.is_file() and "test MSE" in run.output
    assert run.config["train"]["steps"] == 3 and run.config["data"]["source"] == "simulate"
    assert run.config["model"]["layers"] == 1 and run.config["runtime"]["device"] == "cpu"
    assert run.summary is None and run.runs == {} and run.best is None
    opened = gw.Run(run.folder)
    assert opened.metrics == run.metrics and opened.output == ""
    assert repr(run) == f"<run {run.folder}: nbody, 3 steps, test_mse {run.result['test_mse']:.4g}>"
    assert run.about["preset"] == "quick" and run.page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_metrics(run):
    columns = run.metrics.columns("step", "train_loss")
    assert columns["step"] == [1, 2, 3] and all(loss > 0 for loss in columns["train_loss"])
    with pytest.raises(KeyError, match="there are .*train_loss"):
        run.metrics.columns("step", "nothing")
    assert run.result["step"] == 3 and run.result["test_mse"] > 0
    assert run.result == run.metrics[-1]


def test_plots_display(run):
    assert {"loss", "trajectories"} <= set(run.plots)
    plot = run.plots["loss"]
    assert plot is not None and plot.path == run.folder / "loss.svg"
    assert plot._repr_svg_().lstrip().startswith("<svg") and "</svg>" in plot._repr_html_()
    assert run.plots.loss.svg == plot.svg and "loss" in dir(run.plots)
    html = run._repr_html_()
    assert "</svg>" in html and "test MSE" in html and str(run.folder) in html
    with pytest.raises(KeyError, match="no plot 'curve'; it has loss"):
        run.plots["curve"]
    with pytest.raises(AttributeError, match="no plot"):
        run.plots.curve


def test_evaluate(run):
    result = run.evaluate()
    assert result["mse"] == pytest.approx(run.result["test_mse"], rel=1e-6)
    assert (result["split"], result["samples"], result["step"]) == ("test", 8, 3)
    assert gw.evaluate(run.checkpoint) == result
    valid = gw.evaluate([run, run.checkpoint], "valid", device="cpu", dtype="f64", data={"valid": 5})
    assert valid["split"] == "valid" and valid["samples"] == 5 and valid["step"] == [3, 3]


def test_resume(run, tmp_path):
    first = gw.train("nbody", out=tmp_path / "run", progress=False, **small())
    again = gw.train("nbody", resume=first.folder, progress=False, **{"train.steps": 5})
    assert again.folder == first.folder and again.metrics.columns("step", "train_loss")["step"] == [1, 2, 3, 4, 5]


def test_seeds(tmp_path):
    run = gw.train("nbody", out=tmp_path / "run", seeds=[3, 5], progress=False, **small(2))
    assert set(run.runs) == {"seed-3", "seed-5"} and run.summary is not None
    assert run.runs["seed-5"].config["train"]["seed"] == 5
    assert gw.Run(run.folder).runs.keys() == run.runs.keys()


def test_several_processes(tmp_path):
    run = gw.train("nbody", device="cpu", devices=2, out=tmp_path / "run", progress=False, **small(2))
    assert (run.folder / "logs" / "rank-1.log").is_file()
    assert run.result["step"] == 2 and run.config["runtime"]["devices"] == "2"


def test_folders_are_numbered(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folders = [gw.train("nbody", progress=False, **small(1)).folder for _ in range(2)]
    assert folders == [Path("runs/nbody-1"), Path("runs/nbody-2")]
    with pytest.raises(gw.RunError):
        gw.train("nbody", progress=False, train={"stpes": 1})
    assert not Path("runs/nbody-3").exists(), "a run that did not begin leaves no folder"


def test_errors_have_the_text_of_the_program(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(gw.RunError, match="stpes.*did you mean") as caught:
        gw.train("nbody", progress=False, train={"stpes": 1})
    assert caught.value.status == 2 and caught.value.folder == Path("runs/nbody-1")
    assert not str(caught.value).startswith("error")
    with pytest.raises(gw.RunError, match="nbody"):
        gw.train("nbdy", progress=False)
    with pytest.raises(gw.RunError, match="holds a run already"):
        gw.train("nbody", out=run.folder, progress=False)
    with pytest.raises(gw.RunError, match="nothing.safetensors"):
        gw.evaluate(tmp_path / "nothing.safetensors")
    with pytest.raises(gw.RunError, match="holds no run"):
        gw.Run(tmp_path)
    with pytest.raises(gw.RunError, match="not ended"):
        (tmp_path / "config.toml").write_text("")
        _ = gw.Run(tmp_path).result
    if not gw.targets():
        with pytest.raises(gw.RunError, match="no CUDA kernels"):
            gw.train("nbody", device="cuda", progress=False, **small())


def test_settings_as_words():
    settings = {"train": {"steps": 3, "capture": False}, "data.suffix": "_small", "x": {"y": [1, "a"], "z": 1e-7}}
    assert assignments(settings) == [
        "train.steps=3",
        "train.capture=false",
        "data.suffix=_small",
        'x.y=[1, "a"]',
        "x.z=1e-07",
    ]
    with pytest.raises(gw.ArgumentError, match="train.steps is a NoneType"):
        assignments({"train": {"steps": None}})


def test_toml_is_read_by_the_crates():
    assert json.loads(_core.toml_to_json('a = 1e-7\n[b]\nc = ["x", "y"]')) == {"a": 1e-7, "b": {"c": ["x", "y"]}}
    with pytest.raises(gw.ArgumentError, match="line 1"):
        _core.toml_to_json("a =")


def wait_for(path, process):
    for _ in range(600):
        if path.exists() and path.stat().st_size:
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    raise AssertionError(f"{path} did not come")


ENDLESS = [
    "train.steps=1000000000",
    "train.checkpoint_every=0",
    *assignments(SMALL),
    "train.batch_size=4",
    "train.log_every=1",
]


def test_ctrl_c_ends_the_program_in_good_order(tmp_path):
    folder = tmp_path / "run"
    process = program("train", "nbody", "--out", str(folder), *ENDLESS)
    wait_for(folder / "metrics.jsonl", process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "stopping (once more to stop at once, without a checkpoint)" in err
    assert (folder / "checkpoint.safetensors").is_file()


def test_ctrl_c_in_python_ends_the_run_in_good_order(tmp_path):
    folder = tmp_path / "run"
    words = ", ".join(f"{name!r}: {value!r}" for name, value in (word.split("=") for word in ENDLESS))
    script = (
        "import gradewise\n"
        "try:\n"
        f"    gradewise.train('nbody', out={str(folder)!r}, **{{{words}}})\n"
        "except KeyboardInterrupt as interrupt:\n"
        "    print('interrupted:', interrupt)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(gw.__file__).parents[1])}
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    wait_for(folder / "metrics.jsonl", process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and "--resume" in out, (out, err)
    assert re.search(r"^model: \d+ parameters", err, re.MULTILINE), "progress is on the standard error"
    assert (folder / "checkpoint.safetensors").is_file()


def test_a_command_without_a_handler_ends_at_ctrl_c(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    process = program("train", "nbody", "--config", str(pipe))
    writer = None
    for _ in range(600):
        try:
            # Succeeds once the program reads, which then waits for what never comes.
            writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            break
        except OSError:
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
    assert writer is not None, "the program does not read its configuration"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    os.close(writer)
    assert process.returncode == -signal.SIGINT


def test_a_program_that_a_signal_ends_is_an_error():
    # The words begin with what the shell would run; a program of our own has no command that kills it.
    import gradewise._program as module

    before = module.launcher
    module.launcher = lambda: [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    try:
        with pytest.raises(gw.RunError, match="SIGKILL") as caught:
            call([])
        assert caught.value.status == -9
    finally:
        module.launcher = before


def test_a_notebook_shows_one_line_that_updates_and_the_plots(tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    words = {"train.steps": 3, "train.batch_size": 4, "train.log_every": 1}
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell(f"import sys; sys.path.insert(0, {str(Path(gw.__file__).parents[1])!r})"),
            nbformat.v4.new_code_cell(f"import gradewise\nrun = gradewise.train('nbody', **{ {**SMALL, **words}!r})"),
            nbformat.v4.new_code_cell("run.plots['loss']"),
            nbformat.v4.new_code_cell("run"),
        ]
    )
    client = nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": tmp_path}})
    client.execute()
    _, training, plot, run = (cell.outputs for cell in notebook.cells)
    assert [output.output_type for output in training] == ["display_data"], training
    assert training[0]["data"]["text/plain"].startswith("step"), "the last line stays"
    assert "<svg" in plot[0]["data"]["image/svg+xml"] and "test MSE" in run[0]["data"]["text/html"]


def test_importing_costs_little_and_imports_no_library():
    script = (
        "import sys, time\n"
        "start = time.perf_counter()\n"
        "import gradewise\n"
        "print(time.perf_counter() - start, [m for m in ('numpy', 'torch', 'jax') if m in sys.modules])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(gw.__file__).parents[1])}
    times = []
    for _ in range(3):
        out = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True
        )
        seconds, imported = out.stdout.split(maxsplit=1)
        assert imported.strip() == "[]"
        times.append(float(seconds))
    assert min(times) < 0.3, times


def test_errors_have_no_colours(monkeypatch, tmp_path):
    monkeypatch.setenv("CLICOLOR_FORCE", "1")
    with pytest.raises(gw.RunError) as caught:
        gw.train("nbody", out=tmp_path / "run", progress=False, train={"stepz": 1})
    assert "\x1b" not in str(caught.value) + caught.value.output and "stepz" in str(caught.value)
