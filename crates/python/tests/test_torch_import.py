"""A network trained in PyTorch goes on in the program, and comes back."""

import json

import numpy as np
import pytest
import torch

from gradewise._program import call
from gradewise.torch import cgenn

safetensors = pytest.importorskip("safetensors.torch")

SYSTEMS, PARTICLES, FRAMES = 6, 5, 41
START, END = 30, 40
"""The frames of the published data between which positions are predicted."""


def trajectories(folder):
    """Files as the publication's generator writes them, with movements that are no physics."""
    generator = np.random.default_rng(1)
    made = {}
    for split in ("train", "valid", "test"):
        vel = np.cumsum(0.1 * generator.normal(size=(SYSTEMS, FRAMES, 3, PARTICLES)), axis=1)
        loc = generator.normal(size=(SYSTEMS, 1, 3, PARTICLES)) + 0.1 * np.cumsum(vel, axis=1)
        charges = generator.choice([-1.0, 1.0], size=(SYSTEMS, PARTICLES, 1))
        made[split] = loc, vel, charges
        edges = charges * charges.transpose(0, 2, 1)
        for name, values in (("loc", loc), ("vel", vel), ("charges", charges), ("edges", edges)):
            np.save(folder / f"{name}_{split}_charged5_initvel1small.npy", values)
    return made


def batch(loc, vel, charges):
    """What the network takes: positions, velocities, products of charges, charges, positions at the end, edges."""
    rows = [(i, j) for i in range(PARTICLES) for j in range(PARTICLES) if i != j]
    ends = torch.tensor(rows).T
    edges = ends.expand(SYSTEMS, 2, -1)
    charges = torch.tensor(charges, dtype=torch.float32)
    start, velocity, end = (
        torch.tensor(x[:, frame], dtype=torch.float32).transpose(1, 2)
        for x, frame in ((loc, START), (vel, START), (loc, END))
    )
    return start, velocity, charges[:, ends[0]] * charges[:, ends[1]], charges, end, edges


def test_a_trained_network_is_imported_evaluated_and_exported(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    made = trajectories(data)
    torch.manual_seed(2)
    model = cgenn.NBodyCGGNN(hidden_features=6, n_layers=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    first = None
    for step in range(25):
        optimizer.zero_grad()
        loss, _ = model(batch(*made["train"]), step)
        loss.backward()
        optimizer.step()
        first = first or loss.item()
    assert loss.item() < 0.9 * first
    names = ("state.safetensors", "checkpoint.safetensors", "in.npy", "out.npy", "back.safetensors")
    state, checkpoint, systems, predicted, back = (str(tmp_path / name) for name in names)
    safetensors.save_file({name: t.contiguous() for name, t in model.state_dict().items()}, state)
    assert "none missing" in call(["import", state, "--from", "cgenn", "--out", checkpoint])

    inputs = batch(*made["test"])
    with torch.no_grad():
        expected = model.predict(inputs).view(SYSTEMS, PARTICLES, 3).transpose(1, 2).numpy()
        mse = model(inputs, 0)[0].item()
    loc, vel, charges = made["test"]
    rows = [loc[:, START], vel[:, START], charges.transpose(0, 2, 1)]
    np.save(systems, np.concatenate(rows, axis=1).astype(np.float32))
    call(["infer", "--checkpoint", checkpoint, "--input", systems, "--output", predicted])
    found = np.load(predicted)
    assert np.linalg.norm(found - expected) <= 1e-6 * np.linalg.norm(expected)

    words = ["eval", "--checkpoint", checkpoint, "--json", f"data.source={data}", f"data.test={SYSTEMS}"]
    record = json.loads(call(words))
    assert (record["split"], record["samples"]) == ("test", SYSTEMS)
    assert record["mse"] == pytest.approx(mse, rel=1e-5)

    call(["export", checkpoint, "--to", "cgenn", "--out", back])
    returned = safetensors.load_file(back)
    # Besides, the file has the algebra's tables, as the published network does.
    assert all(torch.equal(returned[name], parameter) for name, parameter in model.named_parameters())
