//! Generated kernels on the host: random graphs are captured on a stand-in for the driver, their kernels compiled by the host's C++ compiler
//! and run by the stand-in, and the results compared with those of the operators of the CPU.

use super::{Source, library::Library};
use crate::{
    self as kernels, Array, CudaDevice, DType, Device, Result, ops,
    runtime::cuda::capture::{Fusion, Recorded},
};
use gradewise_fake_driver::{Fake, Kernel};
use gradewise_ffi::{Driver, Module};
use libloading::Library as Shared;
use std::{fmt::Write, io::ErrorKind, path::Path, process::Command};

#[path = "../../../../tests/common/graphs.rs"]
mod graphs;

use graphs::{Inputs, Operators};

/// Graphs in one library: compiling the headers takes longer than a kernel.
const GRAPHS: u64 = 400;

/// A device of the stand-in, and how it runs kernels.
struct Host {
    fake: Fake,
    device: CudaDevice,
    /// Open as long as the stand-in may call them.
    opened: Vec<Shared>,
}

impl Host {
    fn new() -> Self {
        let fake = Fake::new();
        let device = CudaDevice::with_driver(&Driver::open(fake.path()).unwrap(), 0).unwrap();
        Self { fake, device, opened: Vec::new() }
    }

    /// Lets the stand-in know these kernels; `false` without a C++ compiler.
    fn compile(&mut self, sources: &[Source], folder: &Path) -> bool {
        let library = Library::of(&self.device).unwrap();
        let mut text = "#include \"host_cuda.h\"\n#include \"gradewise/functions.cuh\"\n".to_owned();
        let mut known = std::collections::BTreeMap::new();
        for source in sources {
            if known.insert(source.name.clone(), source).is_some() {
                continue;
            }
            let body = source.text.replace("#include \"gradewise/functions.cuh\"\n", "");
            let (_, rest) = body.split_once(&format!("{}(", source.name)).unwrap();
            let (parameters, _) = rest.split_once(") {").unwrap();
            let arguments: Vec<String> = parameters
                .split(", ")
                .enumerate()
                .map(|(n, parameter)| {
                    let (kind, _) = parameter.split_once(" __restrict__").unwrap();
                    format!("*static_cast<{kind} const*>(a[{n}])")
                })
                .collect();
            write!(
                text,
                "namespace in_{name} {{\n{body}\n}}\n\
                 extern \"C\" unsigned run_{name}(const void* const* a, const unsigned (*grid)[3], const unsigned (*block)[3], unsigned) {{\n\
                 gridDim.x = (*grid)[0], blockDim.x = (*block)[0];\n\
                 for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)\n\
                 for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) in_{name}::{name}({});\n\
                 return 0;\n}}\n",
                arguments.join(", "),
                name = source.name,
            )
            .unwrap();
        }
        let here = gradewise_testing::manifest_dir!();
        let (file, shared) = (folder.join("kernels.cpp"), folder.join("libkernels.so"));
        std::fs::write(&file, text).unwrap();
        let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
        let compiled = Command::new(&compiler)
            .args(["-std=c++17", "-O0", "-ffp-contract=off", "-w", "-shared", "-fPIC", "-I"])
            .arg(here.join("csrc"))
            .arg("-I")
            .arg(here.join("tests"))
            .args([&file, Path::new("-o"), &shared])
            .output();
        let compiled = match compiled {
            Ok(compiled) => compiled,
            Err(error) if error.kind() == ErrorKind::NotFound => return false,
            Err(error) => panic!("{compiler:?}: {error}"),
        };
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        // SAFETY: a library of functions, which does nothing when it is opened.
        let opened = unsafe { Shared::new(&shared) }.unwrap();
        for (name, source) in known {
            // SAFETY: the text above declares it with this type.
            let run = unsafe { *opened.get::<Kernel>(format!("run_{name}").as_bytes()).unwrap() };
            self.fake.register(&name, run);
            let parameters: Vec<String> =
                (0..source.addresses.len()).map(|n| format!(".param .u64 p{n}")).collect();
            let entry = format!(".visible .entry {name}({})\n{{ ret; }}\n", parameters.join(", "));
            let ptx = format!(".version 8.0\n.target sm_90\n{entry}\0");
            let module = Module::load(self.device.context(), &name, ptx.as_bytes()).unwrap();
            library.adopt(source, module.function(&name).unwrap());
        }
        self.opened.push(opened);
        true
    }
}

/// Functions whose results change little with small errors of their arguments.
const OPERATORS: Operators = Operators {
    unary: &[
        ops::neg,
        ops::abs,
        ops::square,
        ops::sin,
        ops::cos,
        ops::tanh,
        ops::erf,
        ops::sigmoid,
        ops::silu,
        ops::gelu,
        ops::silu_derivative,
        ops::gelu_derivative,
        |x| ops::pow_scalar(&ops::add_scalar(&ops::square(x)?, 0.5)?, -1.0),
        |x| ops::pow_scalar(&ops::add_scalar(&ops::square(x)?, 0.5)?, -1.5),
        |x| ops::pow_scalar(x, 2.0),
    ],
    binary: &[ops::add, ops::sub, ops::mul, ops::max, ops::min, |x, y| {
        ops::div(x, &ops::add_scalar(&ops::square(y)?, 1.0)?)
    }],
    // Chosen by a constant, where a result near zero would choose one way here and another way there.
    ternary: &[
        |x, y, _| ops::select(&Array::ones([], x.dtype(), &x.device())?, x, y),
        |x, y, z| ops::select(&Array::zeros([], x.dtype(), &x.device())?, x, &ops::mul(y, z)?),
        |x, _, _| x.copy(),
    ],
    longest_sum: 16,
    most_elements: 3_000,
};

/// Captures what `work` does, in as many attempts as it takes to have all kernels. `None` without a C++ compiler.
fn captured<R>(host: &mut Host, mut work: impl FnMut() -> Result<R>) -> Option<R> {
    let folder = tempfile::tempdir().unwrap();
    loop {
        match host.device.clone().record(Fusion::On, &mut work).unwrap() {
            Recorded::Graph(results, graph) => {
                graph.replay().unwrap();
                host.device.synchronize().unwrap();
                return Some(results);
            }
            Recorded::Missing(missing) => {
                if !host.compile(&missing.sources, folder.path()) {
                    eprintln!("skipped: no C++ compiler");
                    return None;
                }
            }
        }
    }
}

fn agree(dtype: DType, tolerance: f64) {
    let mut host = Host::new();
    let device = Device::Cuda(host.device.clone());
    let inputs: Vec<Inputs> = (0..GRAPHS).map(|seed| Inputs::draw(seed, dtype)).collect();
    let there: Vec<Inputs> = inputs.iter().map(|inputs| inputs.on(&device)).collect();
    let graph =
        |inputs: &Inputs, seed: u64| graphs::compute(inputs, &OPERATORS, seed, 5 + seed as usize % 35);
    let all = captured(&mut host, || {
        there.iter().zip(0..).map(|(inputs, seed)| graph(inputs, seed)).collect::<Result<Vec<_>>>()
    });
    let Some(all) = all else { return };
    for ((results, inputs), seed) in all.iter().zip(&inputs).zip(0..) {
        let expected = graph(inputs, seed).unwrap();
        assert_eq!(results.len(), expected.len());
        for (number, (result, expected)) in results.iter().zip(&expected).enumerate() {
            assert_eq!(result.shape(), expected.shape(), "result {number} of seed {seed}");
            let (a, b) = (result.to_f64_vec().unwrap(), expected.to_f64_vec().unwrap());
            let norm = b.iter().map(|b| b * b).sum::<f64>().sqrt();
            let error = a.iter().zip(&b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
            let same = error <= tolerance * norm || (!norm.is_finite() && a == b) || norm == error;
            assert!(
                same,
                "{dtype}, result {number} of seed {seed}, {}: {error:e} of {norm:e}",
                result.shape()
            );
        }
    }
}

#[test]
fn generated_kernels_compute_what_the_operators_of_the_cpu_do() {
    agree(DType::F64, 1e-9);
    agree(DType::F32, 1e-3);
}

#[test]
fn what_nothing_holds_is_not_written_and_a_chain_is_one_kernel() {
    let mut host = Host::new();
    let device = Device::Cuda(host.device.clone());
    let x = Array::from_slice(&[1.0f64, -2.0, 3.0, 0.5], [2, 2], &device).unwrap();
    let before = host.fake.stat("launches");
    let results = captured(&mut host, || {
        let squares = ops::square(&x)?;
        drop(ops::exp(&squares)?);
        let norms = ops::sqrt(&ops::sum(&squares, &[1], true)?)?;
        ops::div(&x, &norms)
    });
    let Some(y) = results else { return };
    assert_eq!(host.fake.stat("launches") - before, 1);
    let norms = [5f64.sqrt(), 9.25f64.sqrt()];
    assert_eq!(y.to_vec::<f64>().unwrap(), [1.0 / norms[0], -2.0 / norms[0], 3.0 / norms[1], 0.5 / norms[1]]);
}
