//! Generated kernels on the host: compiled by the host's C++ compiler, and run by the stand-in for the driver.

use super::{Code, Library};
use crate::{CudaDevice, runtime::cuda::fuse::List};
use gradewise_fake_driver::{Fake, Kernel};
use gradewise_ffi::{Driver, Module};
use libloading::Library as Shared;
use std::{collections::BTreeMap, fmt::Write, io::ErrorKind, path::Path, process::Command};

fn is_staged(code: &Code) -> bool {
    code.name.starts_with("gw_stages_")
}

/// A device of the stand-in, and how it runs kernels.
pub(crate) struct Host {
    pub fake: Fake,
    pub device: CudaDevice,
    /// Open as long as the stand-in may call them.
    opened: Vec<Shared>,
}

impl Host {
    pub fn new() -> Self {
        let fake = Fake::new();
        let device = CudaDevice::with_driver(&Driver::open(fake.path()).unwrap(), 0).unwrap();
        Self { fake, device, opened: Vec::new() }
    }

    /// Lets the stand-in know these kernels, by one library: compiling the headers takes longer than a kernel. `false` without a C++
    /// compiler.
    pub fn compile(&mut self, codes: &[&Code]) -> bool {
        let library = Library::of(&self.device).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let headers =
            ["gradewise/functions", "gradewise/chunk"].map(|name| format!("#include \"{name}.cuh\"\n"));
        let mut text = "#include \"host_cuda.h\"\n".to_owned() + &headers.concat();
        let mut known = BTreeMap::new();
        for code in codes {
            let (_, rest) = code.text.split_once(&format!("{}(", code.name)).unwrap();
            let (parameters, _) = rest.split_once(") {").unwrap();
            let parameters: Vec<&str> = parameters.split(", ").collect();
            if known.insert(code.name.clone(), (*code, parameters.len())).is_some() {
                continue;
            }
            let body: String = code
                .text
                .lines()
                .filter(|line| !line.starts_with("#include"))
                .fold(String::new(), |text, line| text + line + "\n");
            let argument = |(n, parameter): (usize, &&str)| {
                let kind = parameter.rsplit_once(' ').unwrap().0.trim_end_matches("__restrict__").trim_end();
                let kind = if kind.ends_with('*') { kind } else { kind.rsplit(' ').next().unwrap() };
                format!("*static_cast<{kind} const*>(a[{n}])")
            };
            let arguments: Vec<String> = parameters.iter().enumerate().map(argument).collect();
            let arguments = arguments.join(", ");
            let name = &code.name;
            // A barrier is the end of a loop over all threads.
            let (stages, run) = if is_staged(code) {
                (
                    format!("for (int stage = 0; stage < ({arguments}).count; ++stage)\n"),
                    format!("run_stage({arguments}, stage)"),
                )
            } else {
                (String::new(), format!("{name}({arguments})"))
            };
            write!(
                text,
                "namespace in_{name} {{\n{body}\n\
                 extern \"C\" unsigned run_{name}(const void* const* a, const unsigned (*grid)[3], const unsigned (*block)[3], unsigned) {{\n\
                 gridDim = {{(*grid)[0], (*grid)[1], (*grid)[2]}}, blockDim = {{(*block)[0], 1, 1}};\n\
                 for (blockIdx.z = 0; blockIdx.z < gridDim.z; ++blockIdx.z)\n\
                 for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y)\n\
                 for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)\n\
                 {stages}for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) {run};\n\
                 return 0;\n}}\n}}\n",
            )
            .unwrap();
        }
        let here = gradewise_testing::manifest_dir!();
        let (file, shared) = (folder.path().join("kernels.cpp"), folder.path().join("libkernels.so"));
        std::fs::write(&file, text).unwrap();
        let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
        let compiled = Command::new(&compiler)
            .args(["-std=c++17", "-O0", "-ffp-contract=off", "-w", "-shared", "-fPIC", "-I"])
            .arg(here.join("../../csrc"))
            .arg("-I")
            .arg(here.join("tests"))
            .args([&file, Path::new("-o"), &shared])
            .output();
        let compiled = match compiled {
            Ok(compiled) => compiled,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                eprintln!("skipped: no C++ compiler");
                return false;
            }
            Err(error) => panic!("{compiler:?}: {error}"),
        };
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        // SAFETY: a library of functions, which does nothing when it is opened.
        let opened = unsafe { Shared::new(&shared) }.unwrap();
        for (name, (code, parameters)) in known {
            // SAFETY: the text above declares it with this type.
            let run = unsafe { *opened.get::<Kernel>(format!("run_{name}").as_bytes()).unwrap() };
            self.fake.register(&name, run);
            let parameters: Vec<String> = if is_staged(code) {
                vec![format!(".param .align 8 .b8 p0[{}]", size_of::<List>())]
            } else {
                (0..parameters).map(|n| format!(".param .u64 p{n}")).collect()
            };
            let entry = format!(".visible .entry {name}({})\n{{ ret; }}\n", parameters.join(", "));
            let ptx = format!(".version 8.0\n.target sm_90\n{entry}\0");
            let module = Module::load(self.device.context(), &name, ptx.as_bytes()).unwrap();
            library.adopt(code, module.function(&name).unwrap());
        }
        self.opened.push(opened);
        true
    }
}
