"""Operators in children of a fork, and the number of threads they use. Each test runs in a process of its own."""

import subprocess
import sys
import textwrap

import pytest

TORCH = """
    import torch, gradewise.torch as gt
    x = torch.ones(8, 4000, 32)
    compute = lambda: gt.geometric_product(x, x)
"""
NUMPY = """
    import numpy as np, gradewise.numpy as gn
    x = np.ones((8, 4000, 32))
    compute = lambda: gn.geometric_product(x, x)
"""
COUNT = """
    import os
    def threads_that_worked():
        # Beside the one that calls, which converts arrays and waits.
        def ticks():
            names = {}
            for task in os.listdir("/proc/self/task"):
                if int(task) == os.getpid():
                    continue
                try:
                    fields = open(f"/proc/self/task/{task}/stat").read().rsplit(")", 1)[1].split()
                except FileNotFoundError:
                    continue
                names[task] = int(fields[11]) + int(fields[12])
            return names
        before = ticks()
        for _ in range(60):
            compute()
        return sum(after > before.get(task, 0) + 2 for task, after in ticks().items())
"""


def run(*parts, timeout=120):
    code = "\n".join(textwrap.dedent(part) for part in parts)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=timeout)
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
@pytest.mark.parametrize("library", [TORCH, NUMPY], ids=["torch", "numpy"])
def test_a_child_computes_after_its_parent_has(library):
    child = """
    import os, signal
    import numpy as np
    # Compared by NumPy: PyTorch's own operators use OpenMP, which does not survive a fork.
    expected = np.asarray(compute())
    for _ in range(2):
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            grandchild = os.fork()
            same = bool((np.asarray(compute()) == expected).all())
            if grandchild == 0:
                os._exit(0 if same else 1)
            _, status = os.waitpid(grandchild, 0)
            os._exit(0 if same and status == 0 else 1)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status))
    """
    assert run(library, child) == ["0", "0"]


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_workers_of_a_data_loader_compute():
    loader = """
    from torch.utils.data import DataLoader, Dataset
    class Products(Dataset):
        def __len__(self): return 4
        def __getitem__(self, index): return gt.sgp(x, x, torch.ones(32, 20)).sum()
    Products()[0]
    print(len(list(DataLoader(Products(), num_workers=2, timeout=60))))
    """
    assert run(TORCH, loader) == ["4"]


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_the_number_of_threads_of_pytorch_is_followed():
    assert run(TORCH, COUNT, "torch.set_num_threads(1)\nprint(threads_that_worked())") == ["1"]
    # Also after another number, and the results are the same bits.
    later = """
    torch.set_num_threads(2)
    before = compute()
    torch.set_num_threads(1)
    after = compute()
    print(threads_that_worked(), bool((before == after).all()))
    """
    assert run(TORCH, COUNT, later) == ["1", "True"]


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
@pytest.mark.parametrize("library", [TORCH, NUMPY], ids=["torch", "numpy"])
def test_a_number_of_threads_may_be_asked_for(library):
    ask = """
    import gradewise
    gradewise.set_num_threads(1)
    print(gradewise.get_num_threads(), threads_that_worked())
    gradewise.set_num_threads(None)
    print(gradewise.get_num_threads() >= 1)
    for wrong in (0, -1, 1025):
        try:
            gradewise.set_num_threads(wrong)
        except gradewise.ArgumentError as error:
            print(str(wrong) in str(error))
    """
    assert run(library, COUNT, ask) == ["1", "1", "True", "True", "True", "True"]
