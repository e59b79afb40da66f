#!/usr/bin/env python3
"""Times PyTorch and gradewise on the same CUDA device in one run: products, layers, fully connected products, matrix products.

    python3 benches/compare_gpu.py --binary PATH --out FOLDER             the table of the bench `gpu`
    python3 benches/compare_gpu.py --binary PATH --out FOLDER --sweep     the grid of the heat maps
    python3 benches/compare_gpu.py --ours FILE --out FOLDER               beside a report made before
    python3 benches/compare_gpu.py --check                                only the checks of the formulas; needs no GPU

PATH is the bench program: cargo bench --features cuda --bench gpu --no-run prints it.

The reference is the operators' definition written term by term in PyTorch, eagerly and through torch.compile, each also
captured as a CUDA graph; with --flash FOLDER the fused kernels of Flash Clifford (a clone of its repository) too. Both sides
are timed alike: runs queued one behind the other between CUDA events, the median after a warm-up. TF32 is allowed where the
case says so. The cases are those of gradewise's report, and the result is a report of the same format (docs/profiling.md):
FOLDER/ours.json and FOLDER/reference.json (or ours-sweep.json, reference-sweep.json), which bench-plots draws.

Before anything is timed, the formulas are compared in double precision with the dense einsum over the Cayley tensor, and
gradewise's outputs and gradients with the formulas.
"""
import argparse
import collections
import datetime
import itertools
import json
import math
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time

SCHEMA = "gradewise-bench/1"
PASSES = ("fwd", "both", "graph")
OPERATORS = ("product", "fc", "layer", "fc-layer", "matmul")


def fail(reason):
    sys.exit(f"compare_gpu: {reason}")


try:
    import torch
except ImportError as error:
    if __name__ == "__main__" and not {"-h", "--help"} & set(sys.argv):
        fail(f"PyTorch is needed ({error}); install it with: pip install torch")
    torch = None


class Algebra:
    """Blades, terms and paths of Cl(p,q,r) from the definition of the product of two blades."""

    def __init__(self, p, q, r):
        n = p + q + r
        metric = [1] * p + [-1] * q + [0] * r
        self.blades = [b for g in range(n + 1) for b in itertools.combinations(range(n), g)]
        self.grades = [len(b) for b in self.blades]
        index = {b: i for i, b in enumerate(self.blades)}
        self.terms = []  # (left, right, out, sign)
        for i, a in enumerate(self.blades):
            for k, b in enumerate(self.blades):
                word = list(a) + list(b)
                swaps = sum(word[s] > word[t] for s in range(len(word)) for t in range(s + 1, len(word)))
                sign = (-1) ** swaps * math.prod(metric[e] for e in set(a) & set(b))
                if sign:
                    self.terms.append((i, k, index[tuple(sorted(set(a) ^ set(b)))], sign))
        grade = lambda t: (self.grades[t[0]], self.grades[t[2]], self.grades[t[1]])
        self.paths = sorted({grade(t) for t in self.terms})
        self.path_of = [self.paths.index(grade(t)) for t in self.terms]


# The operators on the blades one by one: nothing is stacked between operations, so that a compiler can fuse them.

def gate(blades):
    factor = 0.5 * (1 + torch.erf(blades[0] / math.sqrt(2)))
    return [blade * factor for blade in blades]


def rms_norm(algebra, parts):
    out = []
    for grade in range(max(algebra.grades) + 1):
        group = [o for o, g in zip(parts, algebra.grades) if g == grade]
        scale = torch.rsqrt(sum(o * o for o in group).mean(-1, keepdim=True) + 1e-6)
        out += [o * scale for o in group]
    return torch.stack(out)


def product(algebra, x, y, w):
    """gelu_sgp_norm: x, y blades of [B, N], w [N, paths]."""
    x, y = gate(x), gate(y)
    parts = [0] * len(algebra.blades)
    for (i, k, j, s), path in zip(algebra.terms, algebra.path_of):
        parts[j] = parts[j] + s * w[:, path] * (x[i] * y[k])
    return rms_norm(algebra, parts)


def fc(algebra, x, y, w):
    """gelu_fcgp_norm: x, y blades of [B, N], w [paths, N, M]; a matrix product for each path and out blade."""
    x, y = gate(x), gate(y)
    pairs = {}
    for (i, k, j, s), path in zip(algebra.terms, algebra.path_of):
        pairs[path, j] = pairs.get((path, j), 0) + s * (x[i] * y[k])
    parts = [0] * len(algebra.blades)
    for (path, j), pair in pairs.items():
        parts[j] = parts[j] + pair @ w[path]
    return rms_norm(algebra, parts)


def linear(algebra, x, weight, bias):
    """A matrix product for each grade, whose blades lie together; the bias on the scalar."""
    blades = []
    for grade in range(max(algebra.grades) + 1):
        start, count = algebra.grades.index(grade), algebra.grades.count(grade)
        blades += (x[start:start + count] @ weight[grade]).unbind(0)
    return [blades[0] + bias, *blades[1:]]


def inputs_of(op, algebra, batch, n, draw):
    """The arguments of an operator by the names that gradewise gives them."""
    blades, paths, grades = len(algebra.blades), len(algebra.paths), max(algebra.grades) + 1
    weight = lambda full: draw((paths, n, n), 1 / (n * grades)) if full else draw((n, paths), 1 / grades)
    if op in ("product", "fc"):
        return {"x": draw((blades, batch, n), 1), "y": draw((blades, batch, n), 1), "w": weight(op == "fc")}
    if op in ("layer", "fc-layer"):
        return {"x": draw((blades, batch, n), 1), "gp_weight": weight(op == "fc-layer"),
                "linear_weight": draw((grades, n, n), 1 / (n * grades)), "linear_bias": draw((n,), 1)}
    return {"x": draw((batch, n), 1), "w": draw((n, n), 1 / n)}


def formula(op, algebra):
    """The operator as a function of its named inputs."""
    if op in ("product", "fc"):
        kind = product if op == "product" else fc
        return lambda x, y, w: kind(algebra, x.unbind(0), y.unbind(0), w)
    if op in ("layer", "fc-layer"):
        kind = product if op == "layer" else fc
        return lambda x, gp_weight, linear_weight, linear_bias: kind(
            algebra, x.unbind(0), linear(algebra, x, linear_weight, linear_bias), gp_weight)
    return lambda x, w: x @ w


# Checks.

def relative(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm().clamp_min(1e-300)).item()


def gradients(function, inputs, seed):
    leaves = {name: value.detach().requires_grad_() for name, value in inputs.items()}
    output = function(**leaves)
    return output.detach(), dict(zip(leaves, torch.autograd.grad(output, list(leaves.values()), seed)))


def dense(op, algebra):
    """The same operators by einsum over the dense Cayley tensor, as they are defined."""
    blades, paths = len(algebra.blades), len(algebra.paths)
    cayley = torch.zeros(paths, blades, blades, blades, dtype=torch.float64)
    for (i, k, j, s), path in zip(algebra.terms, algebra.path_of):
        cayley[path, i, k, j] = s
    grades = torch.tensor(algebra.grades)

    def gated(x):
        return x * (0.5 * (1 + torch.erf(x[:1] / math.sqrt(2))))

    def norm(o):
        squares = torch.stack([(o[grades == g] ** 2).sum(0).mean(-1) for g in range(max(algebra.grades) + 1)])
        return o / torch.sqrt(squares + 1e-6)[grades][..., None]

    def weighted(x, y, w):
        return norm(torch.einsum("pikj,np,ibn,kbn->jbn", cayley, w, gated(x), gated(y)))

    def full(x, y, w):
        return norm(torch.einsum("pikj,ibn,kbn,pnm->jbm", cayley, gated(x), gated(y), w))

    def layer(kind):
        def run(x, gp_weight, linear_weight, linear_bias):
            y = torch.einsum("ibn,inm->ibm", x, linear_weight[grades])
            return kind(x, torch.cat([y[:1] + linear_bias, y[1:]]), gp_weight)
        return run

    return {"product": weighted, "fc": full, "layer": layer(weighted), "fc-layer": layer(full)}[op]


def check_formulas():
    """Formulas against the dense definition, in double precision on the CPU."""
    generator = torch.Generator().manual_seed(0)
    draw = lambda shape, variance: math.sqrt(variance) * torch.randn(shape, generator=generator, dtype=torch.float64)
    worst = 0
    for signature in [(2, 0, 0), (3, 0, 0), (1, 3, 0), (3, 0, 1)]:
        algebra = Algebra(*signature)
        for op in ("product", "fc", "layer", "fc-layer"):
            inputs = inputs_of(op, algebra, 5, 3, draw)
            seed = draw((len(algebra.blades), 5, 3), 1)
            ours, expected = (gradients(make(op, algebra), inputs, seed) for make in (formula, dense))
            errors = [relative(ours[0], expected[0])] + [relative(ours[1][k], expected[1][k]) for k in inputs]
            if not max(errors) < 1e-11:
                fail(f"the formula of {op} in Cl{signature} is wrong: errors {errors}")
            worst = max(worst, *errors)
    print(f"formulas agree with the dense definition: at worst {worst:.1e} (f64)")


def read_safetensors(path):
    """Tensors by name, in double precision."""
    types = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            start, end = (8 + length + offset for offset in entry["data_offsets"])
            flat = torch.frombuffer(bytearray(data[start:end]), dtype=types[entry["dtype"]])
            tensors[name] = flat.reshape(entry["shape"]).double()
    return tensors, header.get("__metadata__", {})


def check_dump(path, tolerance):
    """A dump of the bench program against the formula in double precision; gives the worst error."""
    tensors, metadata = read_safetensors(path)
    algebra = Algebra(*map(int, metadata["signature"].split(",")))
    inputs = {name.removeprefix("input."): value for name, value in tensors.items() if name.startswith("input.")}
    output, expected = gradients(formula(metadata["op"], algebra), inputs, tensors["seed"])
    errors = {"output": relative(tensors["output"], output)}
    errors |= {f"grad.{name}": relative(tensors[f"grad.{name}"], value) for name, value in expected.items()}
    if not max(errors.values()) <= tolerance:
        fail(f"{metadata['case']} differs from the formula by more than {tolerance}: {errors}")
    return max(errors.values())


def check_ours(binary):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "dump.safetensors")
        for op, signature, dtype, compute, tolerance in [
                *((op, "3,0,0", "f32", "exact", 5e-6) for op in ("product", "fc", "layer", "fc-layer")),
                ("layer", "2,0,0", "f32", "exact", 5e-6), ("layer", "3,0,0", "f32", "tf32", 2e-3),
                ("fc", "3,0,0", "f32", "tf32", 2e-3)]:
            run([binary, "--op", op, "--signature", signature, "--batch", "257", "--features", "96",
                 "--dtype", dtype, "--compute", compute, "--dump", path])
            print(f"gradewise's {op} Cl({signature}) {dtype} {compute} agrees with the formula: "
                  f"{check_dump(path, tolerance):.1e}")


# Times.

def times(work, warm_up, iters):
    """Times of `work` in milliseconds, sorted: queued between events, waited for at the end."""
    for _ in range(warm_up):
        work()
    torch.cuda.synchronize()
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(iters)]
    for start, end in events:
        start.record()
        work()
        end.record()
    torch.cuda.synchronize()
    return sorted(start.elapsed_time(end) for start, end in events)


def rate_of_products(dtype, tf32, size=8192):
    torch.backends.cuda.matmul.allow_tf32 = tf32
    a, b = torch.randn(2, size, size, device="cuda", dtype=dtype)
    return 2 * size ** 3 / statistics.median(times(lambda: a @ b, 3, 10)) * 1e3


def ceilings():
    a, b = torch.empty(2, 1 << 28, dtype=torch.float32, device="cuda").fill_(1)
    copy = 2 * (1 << 30) / statistics.median(times(lambda: b.copy_(a), 3, 10)) * 1e3
    del a, b
    products = {"tf32": rate_of_products(torch.float32, True), "bf16": rate_of_products(torch.bfloat16, False)}
    return {"copy_bytes_per_s": copy,
            "products": {name: {"ours": None, "vendor": rate} for name, rate in products.items()}}


def captured(step):
    """`step` as a CUDA graph, after a warm-up beside the current stream as PyTorch wants it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def flash(folder, case):
    """Flash Clifford's operator for a case as (function, inputs' names), or None if it has none."""
    dimension, op = case["signature"][0], case["op"]
    if case["signature"] not in ([2, 0, 0], [3, 0, 0]) or op not in ("product", "fc", "layer", "fc-layer"):
        return None
    if folder not in sys.path:
        sys.path.insert(0, folder)
    import ops
    full = "fc_" if op.startswith("fc") else ""
    fused = getattr(ops, f"fused_gelu_{full}sgp_norm_{dimension}d", None)
    if fused is None:
        return None
    if op in ("product", "fc"):
        return lambda x, y, w: fused(x, y, w, True)
    algebra = Algebra(*case["signature"])
    grades = torch.tensor(algebra.grades, device="cuda")
    # As its own layer does: the bias goes to every blade.
    return lambda x, gp_weight, linear_weight, linear_bias: fused(
        x, torch.bmm(x, linear_weight[grades]) + linear_bias, gp_weight, True)


class Reference:
    """Times the reference for one case after the other."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.rows = []
        # Past its limit torch.compile would go on eagerly, without a word.
        for name, value in (("recompile_limit", 256), ("cache_size_limit", 256), ("fail_on_recompile_limit_hit", True)):
            if hasattr(torch._dynamo.config, name):
                setattr(torch._dynamo.config, name, value)

    def measure(self, case, works):
        """`case` in every variant; `works` has bytes, operations and floor by pass, for the rows."""
        dtype = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[case["dtype"]]
        torch.backends.cuda.matmul.allow_tf32 = case["compute"] == "tf32"
        algebra = Algebra(*case["signature"])
        draw = lambda shape, variance: math.sqrt(variance) * torch.randn(shape, device="cuda", dtype=dtype)
        inputs = {name: value.requires_grad_()
                  for name, value in inputs_of(case["op"], algebra, case["batch"], case["features"], draw).items()}
        plain = formula(case["op"], algebra)
        variants = {}
        if "eager" in self.arguments.variants:
            variants["eager"] = plain
        if "compile" in self.arguments.variants and case["op"] != "matmul":
            if not self.arguments.dynamic:
                torch._dynamo.reset()
            variants["compile"] = torch.compile(plain, dynamic=True if self.arguments.dynamic else False)
        if self.arguments.flash:
            fused = flash(self.arguments.flash, case)
            if fused:
                variants["flash"] = fused
        for variant, function in variants.items():
            try:
                self.variant(case, works, variant, function, inputs)
            except Exception as error:  # A variant that cannot do a case must not cost the others.
                first = str(error).splitlines()[0][:160] if str(error) else ""
                print(f"{title(case)}: {variant} failed: {type(error).__name__}: {first}", file=sys.stderr)
                torch.cuda.synchronize()

    def variant(self, case, works, variant, function, inputs):
        with torch.no_grad():
            output = function(**inputs)
        if variant == "flash":
            with torch.no_grad():
                error = relative(output, formula(case["op"], Algebra(*case["signature"]))(**inputs))
            if case["op"] in ("product", "fc") and not error < 1e-2:
                raise ValueError(f"its output differs from the formula by {error:.1e}")
        seed, leaves = torch.randn_like(output), list(inputs.values())
        del output

        def forward():
            with torch.no_grad():
                function(**inputs)

        def both():
            torch.autograd.grad(function(**inputs), leaves, seed)

        for name in PASSES:
            if name not in works:
                continue
            work, peak = {"fwd": forward, "both": both}.get(name), None
            if work is None:
                work = captured(both)
            found = times(work, self.arguments.warm_up, self.arguments.iters)
            if name != "graph":
                torch.cuda.reset_peak_memory_stats()
                work()
                torch.cuda.synchronize()
                peak = torch.cuda.max_memory_allocated()
            quantile = lambda share: found[min(int(share * len(found)), len(found) - 1)]
            self.rows.append(dict(case, variant=variant, ms=quantile(0.5), low_ms=quantile(0.1), high_ms=quantile(0.9),
                                  runs=len(found), peak_bytes=peak, **works[name], **{"pass": name}))


# The run.

CASE = ("op", "signature", "batch", "features", "dtype", "compute")


def title(case):
    algebra = "" if case["op"] == "matmul" else " Cl({},{},{})".format(*case["signature"])
    compute = f" {case['compute']}" if case["dtype"] == "f32" and case["op"] != "product" else ""
    return f"{case['op']}{algebra} {case['batch']}x{case['features']} {case['dtype']}{compute}"


def run(command):
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if result.returncode:
        fail(f"{' '.join(command)} failed with {result.returncode}:\n{result.stdout[-2000:]}")


def read_report(path):
    try:
        report = json.loads(pathlib.Path(path).read_text())
    except (OSError, ValueError) as error:
        fail(f"{path}: {error}")
    if not isinstance(report, dict) or report.get("schema") != SCHEMA:
        fail(f"{path} is no report of schema {SCHEMA}")
    return report


def write_report(path, report):
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(report, indent=2) + "\n")
    partial.replace(path)


def cases_of(report, only):
    """Every case of the report that the reference has an operator for, with its works by pass."""
    cases = {}
    for row in report["rows"]:
        case = {name: row[name] for name in CASE}
        if row["op"] in OPERATORS and only in title(case):
            works = cases.setdefault(title(case), (case, {}))[1]
            works[row["pass"]] = {name: row[name] for name in ("bytes", "flops", "floor_ms")}
    return list(cases.values())


def print_table(ours, reference):
    theirs = collections.defaultdict(dict)
    for row in reference["rows"]:
        theirs[title(row), row["pass"]][row["variant"]] = row
    variants = sorted({row["variant"] for row in reference["rows"]})
    print(f"\n| what | pass | gradewise ms | {' | '.join(f'{v} ms' for v in variants)} | speed-up over the fastest | "
          "memory, MB: ours / least |\n|" + "---|" * (5 + len(variants)))
    for row in ours["rows"]:
        others = theirs.get((title(row), row["pass"]))
        if not others:
            continue
        cells = [f"{others[v]['ms']:.3f}" if v in others else "" for v in variants]
        best = min(other["ms"] for other in others.values())
        peaks = [other["peak_bytes"] for other in others.values() if other["peak_bytes"]]
        memory = f"{row['peak_bytes'] / 1e6:.0f} / {min(peaks) / 1e6:.0f}" if peaks and row["peak_bytes"] else ""
        print(f"| {title(row)} | {row['pass']} | {row['ms']:.3f} | {' | '.join(cells)} | {best / row['ms']:.2f}× | {memory} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", help="gradewise's bench program `gpu`, built with the feature cuda")
    parser.add_argument("--ours", help="a report that it wrote before, on this device, instead of running it again")
    parser.add_argument("--out", help="the folder for the reports")
    parser.add_argument("--sweep", action="store_true", help="the grid of the heat maps instead of the table")
    parser.add_argument("--only", default="", help="only cases whose name has this text")
    parser.add_argument("--variants", default="eager,compile", help="of the reference: eager, compile (default: both)")
    parser.add_argument("--dynamic", action="store_true",
                        help="compile once for all sizes of an operator: a sweep takes minutes less, the kernels are less special")
    parser.add_argument("--flash", metavar="FOLDER", help="a clone of Flash Clifford's repository, timed too")
    parser.add_argument("--iters", type=int, default=30)
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=math.inf,
                        help="begin no further case after this time; what is left out is said")
    parser.add_argument("--check", action="store_true", help="check the formulas and, with --dump, a dump; time nothing")
    parser.add_argument("--dump", help="a file of the bench program's option --dump, for --check")
    arguments = parser.parse_args()
    arguments.variants = arguments.variants.split(",") if arguments.variants else []
    unknown = set(arguments.variants) - {"eager", "compile"}
    if unknown:
        parser.error(f"no variant {', '.join(sorted(unknown))}; there are eager and compile")
    if arguments.check:
        check_formulas()
        if arguments.dump:
            print(f"{arguments.dump} agrees with the formula: {check_dump(arguments.dump, 2e-3):.1e}")
        return
    if not (arguments.binary or arguments.ours) or not arguments.out:
        parser.error("--out and one of --binary and --ours are needed, or --check")
    if not torch.cuda.is_available():
        fail(f"PyTorch {torch.__version__} finds no CUDA device: nothing to time; --check needs none")
    out = pathlib.Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    suffix = "-sweep" if arguments.sweep else ""
    start = time.monotonic()
    check_formulas()
    if arguments.binary:
        check_ours(arguments.binary)
    if not arguments.ours:
        path = out / f"ours{suffix}.json"
        only = ["--only", arguments.only] if arguments.only else []
        run([arguments.binary, *(["--sweep"] if arguments.sweep else []), *only, "--iters", str(arguments.iters),
             "--warm-up", str(arguments.warm_up), "--json", str(path)])
        ours = read_report(path)
    else:
        ours = read_report(arguments.ours)

    device = torch.cuda.get_device_properties(0)
    if device.name != ours["machine"]["device"]:
        fail(f"the report was made on {ours['machine']['device']}, this is {device.name}")
    reference = Reference(arguments)
    report = {
        "schema": SCHEMA,
        "library": f"PyTorch {torch.__version__}" + (" and Flash Clifford" if arguments.flash else ""),
        "commit": None,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": ours["machine"],
        "ceilings": ceilings(),
        "rows": reference.rows,
    }
    cases = cases_of(ours, arguments.only)
    for index, (case, works) in enumerate(cases):
        if time.monotonic() - start > arguments.seconds:
            print(f"out of time: {len(cases) - index} of {len(cases)} cases left out, from {title(case)} on", file=sys.stderr)
            break
        begun = time.monotonic()
        reference.measure(case, works)
        torch.cuda.empty_cache()
        # After each case: what was measured survives an end before the last.
        write_report(out / f"reference{suffix}.json", report)
        print(f"[{index + 1}/{len(cases)}] {title(case)}: {time.monotonic() - begun:.0f} s", file=sys.stderr)
    print_table(ours, report)


if __name__ == "__main__":
    main()
