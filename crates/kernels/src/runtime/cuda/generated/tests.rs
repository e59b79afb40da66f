//! Generated kernels on the host: compiled by the host's C++ compiler, and run by the stand-in for the driver.

use super::{Code, Library};
use crate::{
    CudaDevice,
    runtime::cuda::{Args, Grid, fuse::List},
};
use gradewise_fake_driver::{Fake, Kernel};
use gradewise_ffi::{Driver, Function, Module};
use libloading::Library as Shared;
use std::{collections::BTreeMap, ffi::c_void, fmt::Write, io::ErrorKind, path::Path, process::Command};

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
            library.keep(code, Some(module.function(&name).unwrap()));
        }
        self.opened.push(opened);
        true
    }
}

/// A kernel that does nothing.
unsafe extern "C" fn nothing(_: *const *const c_void, _: *const [u32; 3], _: *const [u32; 3], _: u32) -> u32 {
    0
}

/// A kernel without parameters in a module of its own.
fn loaded(host: &Host, name: &str) -> Function {
    let ptx = format!(".version 8.0\n.target sm_90\n.visible .entry {name}()\n{{ ret; }}\n\0");
    Module::load(host.device.context(), name, ptx.as_bytes()).unwrap().function(name).unwrap()
}

#[test]
fn of_kernels_that_threads_load_at_once_the_first_stays() {
    let host = Host::new();
    let library = Library::of(&host.device).unwrap();
    let code = Code::new("gw_twice", "", 32, "", "");
    let modules = host.fake.stat("modules");
    let kept = || library.find(&code).flatten().map(|function| function.raw());
    library.keep(&code, None);
    assert_eq!(kept(), None);
    library.keep(&code, Some(loaded(&host, &code.name)));
    let first = kept();
    assert!(first.is_some());
    library.keep(&code, Some(loaded(&host, &code.name)));
    library.keep(&code, None);
    assert_eq!(kept(), first);
    assert_eq!(host.fake.stat("modules"), modules + 1);
}

#[test]
fn a_graph_keeps_its_kernels_loaded() {
    let host = Host::new();
    let modules = host.fake.stat("modules");
    host.fake.register("alone", nothing);
    let kernel = loaded(&host, "alone");
    let launch = || {
        // SAFETY: 1: it has no parameters. 2 to 4: and touches nothing. 5: not overlapped.
        unsafe { host.device.launch_function("test", &kernel, Grid::linear(1), Args::new()) }
    };
    let ((), graph) = host.device.capture(launch).unwrap();
    drop(kernel);
    assert_eq!(host.fake.stat("modules"), modules + 1);
    graph.replay().unwrap();
    drop(graph);
    assert_eq!(host.fake.stat("modules"), modules);
}
