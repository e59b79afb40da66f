"""The type stubs name what the extension module has, and nothing else."""

import ast
import inspect
from pathlib import Path

import pytest

import gradewise
from gradewise import _core

STUB = ast.parse((Path(gradewise.__file__).parent / "_core.pyi").read_text())
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}

# Of every class in Python, or of the machinery of classes written in Rust.
COMMON = set(dir(object)) | {"__weakref__", "__module__", "__reduce__", "__getattr__", "__rpow__", "__rmatmul__"}


def public(names):
    return {name for name in names if not name.startswith("_")}


def stubbed(body):
    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign):
            yield node.target.id


def test_functions_and_classes():
    assert set(CLASSES) | public(stubbed(STUB.body)) == public(dir(_core))


@pytest.mark.parametrize("name", CLASSES)
def test_members(name):
    there = set(vars(getattr(_core, name))) - COMMON
    written = set(stubbed(CLASSES[name].body)) - COMMON
    assert there == written


@pytest.mark.parametrize("name", CLASSES)
def test_parameters(name):
    kind = getattr(_core, name)
    for node in CLASSES[name].body:
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("__") or node.decorator_list:
            continue
        arguments = node.args
        written = [a.arg for a in arguments.args[1:] + ([arguments.vararg] if arguments.vararg else [])]
        there = list(inspect.signature(getattr(kind, node.name)).parameters)[1:]
        assert there == written, node.name


def test_everything_public_is_described():
    for name in public(dir(_core)):
        member = getattr(_core, name)
        assert inspect.getdoc(member), name
        if inspect.isclass(member):
            for other in public(vars(member)):
                described = getattr(member, other)
                assert isinstance(described, int) or inspect.getdoc(described), f"{name}.{other}"
