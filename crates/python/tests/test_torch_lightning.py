"""Training with Lightning: resuming is going on, and two processes are one."""

import re
import subprocess
import sys

import pytest
import torch
from examples import FOLDER, example

pytest.importorskip("lightning")
pytestmark = [
    pytest.mark.skipif(not FOLDER.exists(), reason="the project is not checked out around the tests"),
    pytest.mark.filterwarnings("ignore"),
]


def weights(path):
    return torch.load(path, weights_only=False)["state_dict"]


def test_a_resumed_run_is_the_whole_one(tmp_path):
    module = example("lightning_tagger")
    fit, step, modes = module.fit, module.Tagger.validation_step, []

    def watched(self, batch, index):
        modes.append(torch.is_inference_mode_enabled())
        return step(self, batch, index)

    module.Tagger.validation_step = watched
    whole, model = fit(tmp_path / "whole", 4)
    assert modes[-4:] == [True] * 4, "128 jets in batches of 32"
    first = fit(tmp_path / "parts", 1)[0].callback_metrics["valid"]
    resumed, again = fit(tmp_path / "parts", 4, is_resumed=True)
    assert resumed.current_epoch == whole.current_epoch == 4
    assert whole.callback_metrics["valid"] < first
    for (name, expected), found in zip(model.state_dict().items(), again.state_dict().values()):
        assert torch.equal(found, expected), name
    assert whole.callback_metrics["valid"] == resumed.callback_metrics["valid"]
    loaded = module.Tagger.load_from_checkpoint(tmp_path / "whole" / "last.ckpt")
    momenta = module.jets(4, 5).tensors[0]
    with torch.inference_mode():
        assert torch.equal(loaded(momenta), model(momenta))


def test_two_processes_are_one(tmp_path):
    fit = example("lightning_tagger").fit
    trainer, model = fit(tmp_path / "one", 2)
    words = [sys.executable, str(FOLDER / "lightning_tagger.py"), "--epochs", "2", "--processes", "2"]
    said = subprocess.run([*words, "--folder", str(tmp_path / "two")], capture_output=True, text=True, timeout=300)
    assert said.returncode == 0, said.stderr
    found = weights(tmp_path / "two" / "last.ckpt")
    for name, expected in model.state_dict().items():
        # Sums of gradients in another order, through Adam.
        assert torch.allclose(found[name], expected, rtol=0, atol=2e-4), name
    valid = float(re.search(r"valid (\S+)", said.stdout)[1])
    assert valid == pytest.approx(trainer.callback_metrics["valid"].item(), abs=1e-4)
