"""The program of examples/python that shares rows among devices: on two devices each of its ways takes the steps of one."""

import os
import subprocess
import sys
import textwrap

import pytest
from examples import FOLDER

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="the project is not checked out around the tests")


def run(*words):
    """A process with two devices on the CPU."""
    environment = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, *words], env=os.environ | environment, cwd=FOLDER, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_shard_map_and_pmap_take_the_steps_of_one_device():
    run(
        "-c",
        textwrap.dedent("""
        import jax, jax_devices
        jax.config.update("jax_enable_x64", True)
        assert jax.device_count() == 2
        losses, parameters = jax_devices.on_one_device(5, 12)
        assert losses[-1] < 0.9 * losses[0], losses
        for way in (jax_devices.by_shard_map, jax_devices.by_pmap):
            found, after = way(5, 12)
            assert all(abs(a - b) <= 1e-12 * b for a, b in zip(found, losses, strict=True)), way
            for name, p in parameters.items():
                assert float(abs(after[name] - p).max()) <= 1e-12 * float(abs(p).max()), (way, name)
        # Shares of rows that are not added up are another step.
        jax_devices.jax.lax.pmean = lambda values, axis: values
        wrong, _ = jax_devices.by_pmap(5, 12)
        assert abs(wrong[-1] - losses[-1]) > 1e-6
        """),
    )


def test_the_program_runs():
    lines = run("jax_devices.py", "--steps", "3", "--rows", "8").splitlines()
    assert [line.split(":")[0] for line in lines] == ["on_one_device", "by_shard_map", "by_pmap"]
    assert len({line.split("loss ")[1] for line in lines}) == 1 and all("2 devices" in line for line in lines)
