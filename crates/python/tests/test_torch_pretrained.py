"""Models as folders: written, read back bit for bit, by the program too, and refused with what to do."""

import copy
import json
import pickle
import shutil

import pytest
import torch
import torch.nn.functional as F

import gradewise.torch as gt
from gradewise import ArgumentError, CheckpointError
from gradewise._program import call
from gradewise.torch import cgenn, csmpn, flash, gatr, lgatr
from gradewise.torch.cliffordlayers.models.basic.twod import CliffordBasicBlock2d, CliffordFluidNet2d
from gradewise.torch.cliffordlayers.models.gca.twod import CliffordG3ResNet2d

safetensors = pytest.importorskip("safetensors.torch")

WIDE = {
    "in_mv_channels": 1, "out_mv_channels": 2, "hidden_mv_channels": 4, "in_s_channels": 2, "out_s_channels": 1,
    "hidden_s_channels": 8, "num_blocks": 2,
}  # fmt: skip
SLIM = {
    "in_v_channels": 1, "out_v_channels": 0, "hidden_v_channels": 4, "in_s_channels": 2, "out_s_channels": 1,
    "hidden_s_channels": 8, "num_blocks": 2, "num_heads": 2,
}  # fmt: skip
HEADS = {"num_heads": 2}

MODELS = {
    "lgatr": lambda: lgatr.LGATr(**WIDE, attention=HEADS, mlp={"nonlinearity": "silu"}, dropout_prob=0.25),
    "lgatr configured": lambda: lgatr.LGATr(
        **WIDE,
        attention=lgatr.SelfAttentionConfig(num_heads=2, head_scale=True, multi_query=True),
        mlp=lgatr.MLPConfig(mlp_ratio=2),
        primitives=lgatr.PrimitivesConfig(subgroup=False, bivector=False),
        reinsert_mv_channels=(0,),
        checkpoint_blocks=True,
    ),
    "lgatr conditional": lambda: lgatr.ConditionalLGATr(
        **WIDE, mv_channels_cond=3, s_channels_cond=2, attention=HEADS, crossattention=HEADS, mlp={}
    ),
    "slim": lambda: lgatr.LGATrSlim(**SLIM, nonlinearity_v=None),
    "slim conditional": lambda: lgatr.ConditionalLGATrSlim(**SLIM, v_channels_cond=3, s_channels_cond=2),
    "gatr": lambda: gatr.GATr(**WIDE, attention=HEADS, mlp={}),
    "gatr positions": lambda: gatr.GATr(
        **{**WIDE, "out_s_channels": None},
        attention=gatr.SelfAttentionConfig(pos_encoding=True, multi_query=False, num_heads=2),
        mlp=gatr.MLPConfig(activation="relu"),
        reinsert_s_channels=[1],
    ),
    "nbody": lambda: cgenn.NBodyCGGNN(hidden_features=4, n_layers=2),
}
"""Those that the program has too."""

OTHERS = {
    "gatr axial": lambda: gatr.AxialGATr(**WIDE, attention=HEADS, mlp={}, pos_encodings=(True, False)),
    "hulls": lambda: cgenn.ConvexHullCGMLP(hidden_features=4),
    "o5": lambda: cgenn.O5CGMLP(0.5, 2.0),
    "lorentz": lambda: cgenn.LorentzCGGNN(n_layers=1, hidden_features_h=8, hidden_features_x=2),
    "cemlp": lambda: cgenn.CEMLP(cgenn.CliffordAlgebra((1.0, 1.0, -1.0)), 2, 4, 3),
    "csmpn": lambda: csmpn.MotionCliffordSharedSimplicialMPNN(num_hidden=4, num_layers=1),
    "fluid": lambda: CliffordFluidNet2d(
        g=[-1, -1], block=CliffordBasicBlock2d, num_blocks=[1], in_channels=1, out_channels=1, hidden_channels=4,
        activation=F.gelu, rotation=True, norm=False,
    ),
    "g3": lambda: CliffordG3ResNet2d([1], 1, 1, 4),
    "flash": lambda: flash.Layer(4, (1, 3, 0)),
}  # fmt: skip


def drawn(name):
    torch.manual_seed(0)
    model = {**MODELS, **OTHERS}[name]()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    return model


def same(model, other):
    ours, theirs = model.state_dict(), other.state_dict()
    assert list(ours) == list(theirs)
    return all(ours[name].dtype == theirs[name].dtype and torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("name", [*MODELS, *OTHERS])
def test_models_come_back_bit_for_bit(name, tmp_path):
    model = drawn(name).double()
    model.save_pretrained(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    state = torch.get_rng_state()
    for found in (gt.from_pretrained(tmp_path), type(model).from_pretrained(tmp_path)):
        assert type(found) is type(model) and not found.training and same(found, model)
        assert repr(found) == repr(model)
    assert torch.equal(state, torch.get_rng_state()), "reading draws no random numbers"


@pytest.mark.parametrize("name", [*MODELS, *OTHERS])
def test_copies_and_pickles_know_their_arguments(name, tmp_path):
    model = drawn(name)
    for number, other in enumerate((copy.deepcopy(model), pickle.loads(pickle.dumps(model)))):
        other.save_pretrained(tmp_path / str(number))
        assert same(gt.from_pretrained(tmp_path / str(number)), model)


@pytest.mark.parametrize("name", MODELS)
def test_the_program_reads_and_writes_the_same_folders(name, tmp_path):
    model = drawn(name)
    ours, checkpoint, theirs = tmp_path / "ours", tmp_path / "checkpoint.safetensors", tmp_path / "theirs"
    model.save_pretrained(ours, max_shard_size=4000)
    assert (ours / "model.safetensors.index.json").exists()
    assert "none missing" in call(["import", str(ours), "--out", str(checkpoint)])
    library = "cgenn" if name == "nbody" else type(model).__module__.split(".")[2]
    call(["export", str(checkpoint), "--to", library, "--pretrained", str(theirs)])
    found = gt.from_pretrained(theirs)
    assert type(found) is type(model) and same(found, model)
    # And bytes for bytes, of the weights in one file.
    model.save_pretrained(ours)
    assert (ours / "model.safetensors").read_bytes() == (theirs / "model.safetensors").read_bytes()
    found.save_pretrained(tmp_path / "again")
    call(["import", str(tmp_path / "again"), "--out", str(tmp_path / "again.safetensors")])
    assert (tmp_path / "again.safetensors").read_bytes() == checkpoint.read_bytes()


def test_shards_replace_each_other_and_leave_other_files(tmp_path):
    model = drawn("lgatr")
    (tmp_path / "README.md").write_text("a model")
    model.save_pretrained(tmp_path, max_shard_size=3000)
    shards = sorted(tmp_path.glob("model-*.safetensors"))
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert len(shards) > 3 and set(index["weight_map"].values()) == {path.name for path in shards}
    assert index["metadata"]["total_size"] == sum(4 * tensor.numel() for tensor in model.state_dict().values())
    one = [safetensors.load_file(path) for path in shards]
    assert all(sum(4 * t.numel() for t in shard.values()) <= 3000 or len(shard) == 1 for shard in one)
    assert same(gt.from_pretrained(tmp_path), model)
    model.save_pretrained(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    with pytest.raises(ArgumentError, match="max_shard_size"):
        model.save_pretrained(tmp_path, max_shard_size=0)


def test_arguments_and_dtypes_can_be_changed(tmp_path):
    model = drawn("lgatr")
    model.save_pretrained(tmp_path)
    found = lgatr.LGATr.from_pretrained(tmp_path, dtype=torch.bfloat16, checkpoint_blocks=True)
    assert found._checkpoint_blocks and next(found.parameters()).dtype == torch.bfloat16
    with pytest.raises(CheckpointError, match="nothing takes"):
        lgatr.LGATr.from_pretrained(tmp_path, num_blocks=1)
    # Weights of several dtypes stay as they are.
    model.blocks[0].double()
    model.save_pretrained(tmp_path)
    assert same(gt.from_pretrained(tmp_path), model)


class Tagger(lgatr.LGATr):
    def __init__(self, width: int, *, activation=F.relu) -> None:
        super().__init__(1, 1, 1, width, 1, 1, width, {"num_heads": 2}, {})
        self.head = torch.nn.Linear(width, 1)
        self.activation = activation


def test_classes_of_ones_own(tmp_path):
    model = Tagger(4, activation=torch.tanh)
    model.save_pretrained(tmp_path)
    found = Tagger.from_pretrained(tmp_path)
    assert type(found) is Tagger and found.activation is torch.tanh and same(found, model)
    with pytest.raises(CheckpointError, match="nothing else is imported"):
        gt.from_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="of .*Tagger, not of gradewise.torch.lgatr.LGATr"):
        lgatr.LGATr.from_pretrained(tmp_path)
    with pytest.raises(ArgumentError, match="argument activation of Tagger is .*lambda"):
        Tagger(4, activation=lambda x: x).save_pretrained(tmp_path)
    model.__dict__.pop("_record")
    with pytest.raises(ArgumentError, match="make it by its constructor"):
        model.save_pretrained(tmp_path)


def test_arguments_are_those_of_the_construction(tmp_path):
    options = {"num_heads": 2}
    model = lgatr.LGATr(**WIDE, attention=options, mlp={})
    options["num_heads"] = 4
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["arguments"]["attention"] == {"num_heads": 2}


def changed(folder, **entries):
    path = folder / "config.json"
    made = json.loads(path.read_text())
    path.write_text(json.dumps({**made, **entries}))


BROKEN = {
    "is not there": lambda folder: shutil.rmtree(folder),
    "has no config.json": lambda folder: (folder / "config.json").unlink(),
    "cannot be read": lambda folder: (folder / "config.json").write_text("{"),
    "another library": lambda folder: changed(folder, library="transformers"),
    "install a newer one": lambda folder: changed(folder, format_version=2),
    "format_version 'x'": lambda folder: changed(folder, format_version="x"),
    "has no class": lambda folder: changed(folder, arguments=[]),
    "is no class of gradewise": lambda folder: changed(folder, **{"class": "gradewise.torch.lgatr.get_spurions"}),
    "there is no gradewise.torch.lgatr.LGATx": lambda f: changed(f, **{"class": "gradewise.torch.lgatr.LGATx"}),
    "nothing else is imported": lambda folder: changed(folder, **{"class": "os.system"}),
    "is no path": lambda folder: changed(folder, **{"class": "gradewise.torch..x"}),
    "does not take its arguments": lambda folder: changed(folder, arguments={"num_blocks": 1}),
    "has no weights": lambda folder: (
        (folder / "model-00002-of-00002.safetensors").unlink() or (folder / "model.safetensors.index.json").unlink()
    ),
    "is not there, and model.safetensors.index": lambda f: (f / "model-00002-of-00002.safetensors").unlink(),
    "has both": lambda folder: (folder / "model.safetensors").write_bytes(b""),
    "is damaged": lambda folder: (folder / "model-00002-of-00002.safetensors").write_bytes(b"\0" * 99),
    "are in one of both": lambda folder: shutil.copy(
        folder / "model-00001-of-00002.safetensors", folder / "model-00002-of-00002.safetensors"
    ),
    "has no weight_map": lambda folder: (folder / "model.safetensors.index.json").write_text('{"metadata": {}}'),
    "places linear_in.weight in '../secret": lambda folder: (folder / "model.safetensors.index.json").write_text(
        '{"weight_map": {"linear_in.weight": "../secret.safetensors"}}'
    ),
}


@pytest.mark.parametrize("text", BROKEN)
def test_broken_folders_say_what_to_do(text, tmp_path):
    model = drawn("lgatr")
    total = sum(4 * tensor.numel() for tensor in model.state_dict().values())
    model.save_pretrained(tmp_path, max_shard_size=total * 2 // 3)
    assert len(list(tmp_path.iterdir())) == 4
    gt.from_pretrained(tmp_path)
    BROKEN[text](tmp_path)
    with pytest.raises(CheckpointError) as caught:
        gt.from_pretrained(tmp_path)
    assert text in str(caught.value)


def test_other_weights_are_refused(tmp_path):
    model = drawn("lgatr")
    weights = model.state_dict()

    def refused(match, **other):
        model.save_pretrained(tmp_path, state_dict={**weights, **other})
        with pytest.raises(CheckpointError, match=match):
            gt.from_pretrained(tmp_path)

    refused("nothing takes .1.: extra", extra=torch.zeros(2))
    refused("tensor linear_in.weight has shape .2, 3., expected", **{"linear_in.weight": torch.zeros(2, 3)})
    broken = weights["linear_in.weight"].clone()
    broken.view(-1)[3] = torch.nan
    refused("1 of the .* elements of linear_in.weight are NaN", **{"linear_in.weight": broken})
    weights.pop("linear_in.weight")
    refused("lacks .1.: linear_in.weight")


def test_tables_of_another_algebra_are_refused(tmp_path):
    model = drawn("cemlp")
    state = model.state_dict()
    tables = [name for name in state if name.endswith("cayley")]
    assert tables
    model.save_pretrained(tmp_path, state_dict={**state, **{name: -state[name] for name in tables}})
    with pytest.raises(CheckpointError, match="algebra"):
        gt.from_pretrained(tmp_path)


def test_functions_outside_torch_are_not_called(tmp_path):
    model = drawn("fluid")
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["arguments"]["activation"] == {"function": "torch.nn.functional.gelu"}
    for path in ("os.system", "torch.hub.load", "torch._C._nn.gelu", "builtins.print"):
        changed(tmp_path, arguments={**config["arguments"], "activation": {"function": path}})
        with pytest.raises(CheckpointError, match="torch.nn.functional|no path"):
            gt.from_pretrained(tmp_path)
