"""CSMPN under its published names: golden vectors, weights in both directions, dtypes, refusals and symmetries."""

import copy
import inspect
import pickle
import types
import typing

import pytest
import torch

import gradewise
import gradewise.torch as gt
import gradewise.torch.csmpn as csmpn
from family_cases import (
    FOLDER,
    batch,
    call,
    deviation,
    disturb,
    drawn,
    drawn_state,
    evaluate,
    golden,
    joined,
    ours,
    parted,
    worst,
)
from family_list import BY_NAME, CASES
from gradewise.torch.csmpn.models._metrics import LossMeans
from reference import Dense

OURS = [case for case in CASES if case.package == "csmpn"]
NAMES = [case.name for case in OURS]
NETWORKS = [case for case in OURS if case.kind != "EGCL"]


@pytest.fixture(scope="module")
def vectors():
    if not FOLDER.exists():
        pytest.skip(f"no golden vectors in {FOLDER}")
    found = golden("csmpn")
    assert set(found) == set(NAMES)
    return found


def moved(case, device, dtype=torch.float64):
    inputs, whole = drawn(case)
    return {n: x.to(device).to(dtype) for n, x in inputs.items()}, {n: x.to(device) for n, x in whole.items()}


@pytest.mark.parametrize("case", OURS, ids=NAMES)
def test_initial_values(case, vectors):
    expected, names = vectors[case.name]["initial"]
    flat, found = joined(drawn_state(ours(case)), torch.float32)
    assert found == names
    assert torch.equal(flat, expected)


@pytest.mark.parametrize("case", OURS, ids=NAMES)
def test_double(case, vectors, device):
    model = disturb(ours(case).double()).to(device)
    found = evaluate(model, *moved(case, device))
    expected, names = vectors[case.name]["result"]
    assert joined(found)[1] == names
    assert worst(found, parted(expected, found)) < 1e-11


@pytest.mark.parametrize("case", OURS, ids=NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_short_numbers(case, dtype, device):
    exact = evaluate(disturb(ours(case).double()).to(device), *moved(case, device))
    model = disturb(ours(case).double()).to(device).to(dtype)
    found = evaluate(model, *moved(case, device, dtype))
    assert found["out.0"].dtype == dtype
    assert deviation(found["out.0"], exact["out.0"]) < (1e-4 if dtype == torch.float32 else 0.2)
    assert all(torch.isfinite(x).all() for x in found.values())


@pytest.mark.parametrize("case", OURS, ids=NAMES)
def test_copies_and_checkpoints(case):
    model = disturb(ours(case).double())
    inputs, whole = drawn(case)
    expected = call(model, inputs, whole)[0]
    other = ours(case).double()
    other.load_state_dict(model.state_dict(), strict=True)
    for other in (other, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(call(other, inputs, whole)[0], expected)


@pytest.mark.parametrize("case", NETWORKS, ids=[case.name for case in NETWORKS])
def test_batches_stay_as_they_are(case):
    """So that a second call computes the same."""
    model = disturb(ours(case).double())
    inputs, whole = drawn(case)
    graph = types.SimpleNamespace(**{name: x.clone() for name, x in (inputs | whole).items()})
    first, second = (model(graph, 0, "train")[0] for _ in range(2))
    assert torch.equal(first, second)
    assert set(vars(graph)) == set(inputs | whole)
    assert all(torch.equal(getattr(graph, name), x) for name, x in (inputs | whole).items())


def rotation(n):
    """A random orthogonal matrix."""
    return torch.linalg.qr(torch.randn(n, n, dtype=torch.float64))[0]


@pytest.mark.parametrize("case", NETWORKS, ids=[case.name for case in NETWORKS])
@pytest.mark.parametrize("condition", [True, False])
def test_networks_turn_with_their_input(case, condition, device):
    """By any orthogonal matrix, and all but that of basketball, which has no centre, by shifts."""
    torch.manual_seed(0)
    kind = type(ours(case))
    model = disturb(kind(**case.arguments, condition=condition).double()).to(device)
    inputs, whole = moved(case, device)
    vectors = [name for name in inputs if name not in ("target", "y", "charges")]
    turn = rotation(inputs[vectors[0]].shape[-1]).to(device)
    shift = torch.randn(len(turn), dtype=torch.float64, device=device) * (case.name != "nba")
    turned = {name: inputs[name] @ turn.T for name in vectors}
    place = vectors[0]
    nodes = (whole["node_types"] == 0).reshape(-1, *(1,) * (turned[place].dim() - 1))
    turned[place] = turned[place] + shift * nodes
    one, other = (model.predict(types.SimpleNamespace(**(inputs | whole | x))) for x in ({}, turned))
    expected = one if case.name == "hulls" else one @ turn.T + shift
    assert deviation(other, expected) < 1e-11
    assert case.name == "hulls" or deviation(other, one) > 1e-2


@pytest.mark.parametrize("aggr", ["mean", "sum", "add", "max"])
def test_messages(aggr, device):
    """What each receiver makes of its messages, spelled out."""
    torch.manual_seed(0)
    layer = csmpn.EGCL((1.0, -1.0, 1.0), 2, 3, 2, edge_attr_features=1, node_attr_features=2, aggr=aggr).double()
    layer = disturb(layer).to(device)
    inputs, whole = moved(BY_NAME["egcl_mean"], device)
    h, edges = inputs["h"], whole["edge_index"]
    node_attr = torch.randn(5, 2, 8, dtype=torch.float64, device=device)
    sent = layer.edge_model(torch.cat([h[edges[1]] - h[edges[0]], inputs["edge_attr"]], dim=1))
    received = []
    for node in range(len(h)):
        own = sent[edges[1] == node]
        if not len(own):
            received.append(torch.zeros_like(h[0]))
        elif aggr == "max":
            received.append(own.amax(dim=0))
        else:
            received.append(own.mean(dim=0) if aggr == "mean" else own.sum(dim=0))
    expected = h + layer.node_model(torch.cat([h, torch.stack(received), node_attr], dim=1))
    assert deviation(layer(h, edges, inputs["edge_attr"], node_attr), expected) < 1e-12


@pytest.mark.parametrize("aggr", ["mean", "sum"])
def test_messages_turn_with_versors(aggr, device):
    dense, case = Dense(2, 1, 0), BY_NAME[f"egcl_{aggr}"]
    layer = disturb(csmpn.EGCL((1.0, 1.0, -1.0), **case.arguments).double()).to(device)
    inputs, whole = moved(case, device)
    generator = torch.Generator().manual_seed(3)
    for count in (1, 2, 3):
        versor, inverse = dense.versor(count, generator)
        turned = {n: dense.act(versor, inverse, count % 2 == 1, x.cpu()).to(device) for n, x in inputs.items()}
        one, other = (call(layer, x, whole)[0] for x in (inputs, turned))
        assert deviation(other, dense.act(versor, inverse, count % 2 == 1, one.cpu())) < 1e-9


REFUSED = {
    "aggregation": lambda: csmpn.EGCL((1.0, 1.0), 2, 2, 2, aggr="median"),
    "residual of another width": lambda: csmpn.EGCL((1.0, 1.0), 2, 2, 3),
    "no features": lambda: csmpn.EGCL((1.0, 1.0), 0, 2, 2),
    "squares of 2": lambda: csmpn.EGCL((2.0, 1.0), 2, 2, 2),
    "no width": lambda: csmpn.MotionCliffordSharedSimplicialMPNN(num_hidden=0),
    "blades": lambda: csmpn.EGCL((1.0, 1.0), 2, 2, 2)(torch.zeros(3, 2, 8), torch.zeros(2, 1, dtype=torch.long)),
    "features": lambda: csmpn.EGCL((1.0, 1.0), 2, 2, 2)(torch.zeros(3, 3, 4), torch.zeros(2, 1, dtype=torch.long)),
    "a loss of another name": lambda: LossMeans("loss").update(other=torch.zeros(1)),
    "unequal graphs": lambda: csmpn.MotionCliffordSharedSimplicialMPNN(num_hidden=2).predict(
        types.SimpleNamespace(
            **(batch(2, 5) | {"ptr": torch.arange(4), "pos": torch.zeros(19, 3), "vel": torch.zeros(19, 3)})
        )
    ),
    "targets": lambda: csmpn.HullsCliffordSharedSimplicialMPNN(hidden_features=2)(
        types.SimpleNamespace(**(batch(2, 4) | {"input": torch.randn(17, 5), "target": torch.zeros(3)})), 0, "train"
    ),
    "four players": lambda: csmpn.NBACliffordSharedSimplicialMPNN(num_input=4, num_hidden=2).predict(
        types.SimpleNamespace(**(batch(1, 4) | {"pos": torch.zeros(9, 2, 2), "vel": torch.zeros(9, 2, 2)}))
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refusals(what):
    """Each says what was given and what is expected."""
    with pytest.raises((gradewise.ArgumentError, gradewise.ShapeError), match="expected|must|features"):
        REFUSED[what]()


def test_weights_of_another_algebra():
    one, other = (csmpn.EGCL(metric, 2, 2, 2) for metric in ((1.0, 1.0), (1.0, -1.0)))
    with pytest.raises(gradewise.CheckpointError, match="metric"):
        one.load_state_dict(other.state_dict())


def test_means_of_losses():
    """As the published trainer asks for them: over samples, not over batches."""
    model = csmpn.MotionCliffordSharedSimplicialMPNN(num_hidden=2, num_layers=1)
    means = model.train_metrics
    assert means.empty() and means.compute() == {}
    means.update(loss=torch.tensor([1.0, 2.0, 3.0]))
    means.update(loss=torch.tensor([10.0]))
    assert float(means.compute()["loss"]) == 4.0
    means.reset()
    assert means.empty() and list(means.keys()) == ["loss"]


def test_a_step_of_training():
    """Of a network that is accelerated already: nothing in it is somebody else's."""
    case = BY_NAME["motion"]
    model = ours(case)
    report = gt.accelerate(model)
    assert not report.replaced
    inputs, whole = moved(case, "cpu", torch.float32)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(20):
        loss, _ = model(types.SimpleNamespace(**inputs, **whole), 0, "train")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("kind", sorted({case.kind for case in NETWORKS}))
def test_the_published_command_line_keeps_defaults(kind):
    """It passes None for what is annotated as `Optional` of one type, whatever the default is."""
    maker = getattr(csmpn, kind)
    hints = typing.get_type_hints(maker.__init__)
    for name, parameter in inspect.signature(maker).parameters.items():
        hint = hints[name]
        is_optional = typing.get_origin(hint) is typing.Union and typing.get_args(hint)[1:] == (type(None),)
        assert not is_optional or parameter.default is None, name
