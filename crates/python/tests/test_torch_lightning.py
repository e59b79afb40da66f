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


def test_inference_mode(tmp_path):
    """Lightning validates and predicts in inference mode. Values are those of a pass with gradients, and layers keep nothing from such
    passes that a later backward pass refuses."""
    import lightning

    module = example("lightning_tagger")
    module.Tagger.predict_step = lambda self, batch, index: (torch.is_inference_mode_enabled(), self(batch[0]))
    loader = torch.utils.data.DataLoader(module.jets(8, 3), 4)
    momenta, labels = module.jets(8, 3).tensors
    found = {}
    for is_first in (True, False):
        lightning.seed_everything(0)
        model = module.Tagger()
        if is_first:
            options = {"accelerator": "cpu", "devices": 1, "logger": False, "enable_progress_bar": False}
            trainer = lightning.Trainer(inference_mode=True, **options, default_root_dir=tmp_path)
            (valid,) = trainer.validate(model, loader, verbose=False)
            modes, logits = zip(*trainer.predict(model, loader))
            assert modes == (True, True)
        # The first passes of one model were in inference mode, those of the other have gradients.
        model.train()
        loss = model.training_step((momenta, labels), 0)
        loss.backward()
        found[is_first] = [loss.detach(), *(p.grad for p in model.parameters())]
        if is_first:
            predicted = torch.cat(logits)
            assert torch.allclose(predicted, model(momenta).detach(), rtol=1e-5, atol=1e-6)
            assert valid["valid"] == pytest.approx(loss.item(), rel=1e-5)
    for first, second in zip(found[True], found[False]):
        assert torch.equal(first, second)


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
