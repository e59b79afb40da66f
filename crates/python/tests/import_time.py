"""Prints the seconds that an import takes in a new interpreter, the least of five; fails above 0.3."""

import subprocess
import sys

code = f"import time; began = time.perf_counter(); import {sys.argv[1]}; print(time.perf_counter() - began)"
best = min(
    float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    for _ in range(5)
)
print(f"{best:.3f}")
sys.exit(best > 0.3)
