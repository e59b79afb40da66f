//! The tables, structures and constants against the vendor's headers, by a C++ compiler. Where a header is not found (in
//! `CUDA_HOME/include`, or what `scripts/get-nvcc` installed), the test says so and passes.

use gradewise_ffi::{Calls, cublaslt, nvml, nvrtc, sys, tensor_map};
use std::{
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// A folder that has the header.
fn include(header: &str) -> Option<PathBuf> {
    let mut roots: Vec<PathBuf> =
        ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(env::var_os).map(Into::into).collect();
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")));
    let installed = cache.into_iter().flat_map(|cache| fs::read_dir(cache.join("gradewise/cuda"))).flatten();
    roots.extend(installed.filter_map(|entry| Some(entry.ok()?.path())));
    roots.extend(["/usr/local/cuda", "/opt/cuda"].map(PathBuf::from));
    let found =
        roots.into_iter().map(|root| root.join("include")).find(|folder| folder.join(header).is_file());
    if found.is_none() {
        println!("skipped: {header} is not on this machine");
    }
    found
}

/// What C++ can tell about a type, and we about ours: a pointer with the size of what it points to (0 for `void` and for
/// handles), or a number with its size.
const DESCRIBE: &str = r#"
#include <cstddef>
template <class T, class = void> struct size_of { static constexpr std::size_t value = 0; };
template <class T> struct size_of<T, decltype((void)sizeof(T))> { static constexpr std::size_t value = sizeof(T); };
template <> struct size_of<void> { static constexpr std::size_t value = 0; };
template <> struct size_of<const void> { static constexpr std::size_t value = 0; };
template <class T> struct describe { static constexpr std::size_t value = sizeof(T); };
template <class T> struct describe<T *> { static constexpr std::size_t value = 1000 + size_of<T>::value; };
template <class R, class... A> struct describe<R (*)(A...)> { static constexpr std::size_t value = 1000; };
template <std::size_t... N> struct list {};
template <class T, class U> struct same { static constexpr bool value = false; };
template <class T> struct same<T, T> { static constexpr bool value = true; };
template <std::size_t... N, class R, class... A> constexpr bool takes(R (*)(A...)) {
    return same<list<N...>, list<describe<A>::value...>>::value && sizeof(R) == 4;
}
"#;

fn size(name: &str) -> usize {
    match name {
        "c_void" => 0,
        "c_char" | "u8" => 1,
        "c_int" | "c_uint" | "c_float" | "CUdevice" | "CUresult" | "nvmlReturn_t" | "nvrtcResult" => 4,
        "u64" | "i64" | "usize" | "CUdeviceptr" => 8,
        "CUtensorMap" => size_of::<sys::CUtensorMap>(),
        "CUlaunchConfig" => size_of::<sys::CUlaunchConfig>(),
        "CUmemAccessDesc" => size_of::<sys::CUmemAccessDesc>(),
        "CUDA_MEMCPY3D" => size_of::<sys::CUDA_MEMCPY3D>(),
        "CUgraphExecUpdateResultInfo" => size_of::<sys::CUgraphExecUpdateResultInfo>(),
        "nvmlMemory_t" => size_of::<nvml::nvmlMemory_t>(),
        "nvmlUtilization_t" => size_of::<nvml::nvmlUtilization_t>(),
        "nvmlProcessInfo_t" => size_of::<nvml::nvmlProcessInfo_t>(),
        "cublasLtMatmulHeuristicResult_t" => size_of::<cublaslt::cublasLtMatmulHeuristicResult_t>(),
        "cublasLtMatmulAlgo_t" => size_of::<cublaslt::cublasLtMatmulAlgo_t>(),
        handle => {
            let known =
                handle.starts_with("CU") || ["Object", "nvmlDevice_t", "nvrtcProgram"].contains(&handle);
            assert!(known, "{handle} is not known here");
            8
        }
    }
}

/// As `describe` above. Handles are pointers to what the header only declares, or in cuBLASLt to opaque structures.
fn describe(parameter: &str) -> usize {
    const NUMBERS: [&str; 2] = ["CUdevice", "CUdeviceptr"];
    match parameter.strip_prefix("*mut ").or_else(|| parameter.strip_prefix("*const ")) {
        Some(pointee) if pointee.starts_with('*') => 1008,
        Some(pointee) => 1000 + size(pointee),
        None if parameter.starts_with("nvmlDevice") || parameter == "nvrtcProgram" => 1000,
        None if parameter.starts_with("CU") && !NUMBERS.contains(&parameter) && parameter != "CUresult" => {
            1000
        }
        None => size(parameter),
    }
}

fn compile(include: &Path, text: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("check.cpp");
    fs::write(&file, text).unwrap();
    let compiler = env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let output =
        Command::new(&compiler).args(["-std=c++17", "-fsyntax-only", "-I"]).arg(include).arg(&file).output();
    match output {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => println!("skipped: {compiler}: {error}"),
    }
}

fn functions(text: &mut String, signatures: &[(&str, &[&str])]) {
    for (name, parameters) in signatures {
        let sizes: Vec<String> = parameters.iter().map(|parameter| describe(parameter).to_string()).collect();
        writeln!(text, r#"static_assert(takes<{}>({name}), "{name}");"#, sizes.join(", ")).unwrap();
    }
}

/// Asserts that each constant is what the header calls by the prefix and its name.
macro_rules! constants {
    ($text:ident, $prefix:literal, $module:tt: $($name:ident),* $(,)?) => {
        $(constants!(@one $text, $prefix, $module, $name);)*
    };
    (@one $text:ident, $prefix:literal, [$($module:tt)+], $name:ident) => {
        let name = concat!($prefix, stringify!($name));
        writeln!($text, r#"static_assert((long long){name} == {}, "{name}");"#, value($($module)+::$name)).unwrap();
    };
}

trait Value {
    fn value(self) -> i64;
}
impl Value for u32 {
    fn value(self) -> i64 {
        self.into()
    }
}
impl Value for i32 {
    fn value(self) -> i64 {
        self.into()
    }
}
impl Value for sys::CUresult {
    fn value(self) -> i64 {
        self.0.into()
    }
}
fn value(value: impl Value) -> i64 {
    value.value()
}

#[test]
fn the_driver() {
    let Some(include) = include("cuda.h") else { return };
    let mut text = format!("#include <cuda.h>\n{DESCRIBE}");
    // Two functions have a header of their own, which not every toolkit comes with.
    let signatures: Vec<_> =
        Calls::SIGNATURES.iter().filter(|(name, _)| !name.starts_with("cuProfiler")).copied().collect();
    functions(&mut text, &signatures);
    constants!(text, "CU_DEVICE_ATTRIBUTE_", [sys::device_attribute]:         MAX_THREADS_PER_BLOCK, MAX_BLOCK_DIM_X, MAX_GRID_DIM_X, MAX_SHARED_MEMORY_PER_BLOCK, WARP_SIZE,
        MAX_REGISTERS_PER_BLOCK, CLOCK_RATE, MULTIPROCESSOR_COUNT, KERNEL_EXEC_TIMEOUT, COMPUTE_MODE, ECC_ENABLED,
        MEMORY_CLOCK_RATE, GLOBAL_MEMORY_BUS_WIDTH, L2_CACHE_SIZE, COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MINOR,
        MAX_THREADS_PER_MULTIPROCESSOR, MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, MAX_REGISTERS_PER_MULTIPROCESSOR,
        MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, MEMORY_POOLS_SUPPORTED, CLUSTER_LAUNCH);
    constants!(text, "CU_FUNC_ATTRIBUTE_", [sys::function_attribute]:         MAX_THREADS_PER_BLOCK, SHARED_SIZE_BYTES, LOCAL_SIZE_BYTES, NUM_REGS, PTX_VERSION, BINARY_VERSION,
        MAX_DYNAMIC_SHARED_SIZE_BYTES, NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
    constants!(text, "CU_JIT_", [sys::jit_option]:         INFO_LOG_BUFFER, INFO_LOG_BUFFER_SIZE_BYTES, ERROR_LOG_BUFFER, ERROR_LOG_BUFFER_SIZE_BYTES);
    constants!(text, "CU_MEMPOOL_ATTR_", [sys::pool_attribute]:         RELEASE_THRESHOLD, RESERVED_MEM_CURRENT, RESERVED_MEM_HIGH, USED_MEM_CURRENT, USED_MEM_HIGH);
    constants!(text, "CU_STREAM_CAPTURE_MODE_", [sys::capture_mode]: GLOBAL, THREAD_LOCAL, RELAXED);
    constants!(text, "CU_STREAM_CAPTURE_STATUS_", [sys::capture_status]: ACTIVE, INVALIDATED);
    constants!(text, "CU_GRAPH_NODE_TYPE_", [sys::graph_node_type]: KERNEL, MEMCPY, MEMSET, HOST, MEM_ALLOC, MEM_FREE);
    constants!(text, "CU_MEMORYTYPE_", [sys::memory_type]: HOST, UNIFIED);
    constants!(text, "", [sys]:         CU_STREAM_NON_BLOCKING, CU_EVENT_DISABLE_TIMING, CU_MEMHOSTALLOC_PORTABLE, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
    constants!(text, "CU_TENSOR_MAP_DATA_TYPE_", [tensor_map]: UINT8, INT32, FLOAT16, FLOAT32, FLOAT64, BFLOAT16, TFLOAT32);
    constants!(text, "CU_TENSOR_MAP_", [tensor_map]: SWIZZLE_NONE, SWIZZLE_32B, SWIZZLE_64B, SWIZZLE_128B);
    constants!(text, "CUDA_", [sys::CUresult]:         SUCCESS, ERROR_INVALID_VALUE, ERROR_OUT_OF_MEMORY, ERROR_NOT_INITIALIZED, ERROR_DEINITIALIZED,
        ERROR_STUB_LIBRARY, ERROR_NO_DEVICE, ERROR_INVALID_DEVICE, ERROR_INVALID_IMAGE, ERROR_INVALID_CONTEXT,
        ERROR_NO_BINARY_FOR_GPU, ERROR_ECC_UNCORRECTABLE, ERROR_INVALID_PTX, ERROR_UNSUPPORTED_PTX_VERSION,
        ERROR_INVALID_SOURCE, ERROR_FILE_NOT_FOUND, ERROR_SHARED_OBJECT_INIT_FAILED, ERROR_INVALID_HANDLE,
        ERROR_ILLEGAL_STATE, ERROR_NOT_FOUND, ERROR_NOT_READY, ERROR_ILLEGAL_ADDRESS, ERROR_LAUNCH_OUT_OF_RESOURCES,
        ERROR_LAUNCH_TIMEOUT, ERROR_PEER_ACCESS_ALREADY_ENABLED, ERROR_PEER_ACCESS_NOT_ENABLED, ERROR_ASSERT,
        ERROR_HARDWARE_STACK_ERROR, ERROR_ILLEGAL_INSTRUCTION, ERROR_MISALIGNED_ADDRESS, ERROR_INVALID_ADDRESS_SPACE,
        ERROR_INVALID_PC, ERROR_LAUNCH_FAILED, ERROR_NOT_PERMITTED, ERROR_NOT_SUPPORTED, ERROR_SYSTEM_DRIVER_MISMATCH,
        ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, ERROR_STREAM_CAPTURE_UNSUPPORTED, ERROR_STREAM_CAPTURE_INVALIDATED,
        ERROR_STREAM_CAPTURE_MERGE, ERROR_STREAM_CAPTURE_UNMATCHED, ERROR_STREAM_CAPTURE_UNJOINED,
        ERROR_STREAM_CAPTURE_IMPLICIT, ERROR_STREAM_CAPTURE_ISOLATION, ERROR_CAPTURED_EVENT, ERROR_STREAM_CAPTURE_WRONG_THREAD,
        ERROR_GRAPH_EXEC_UPDATE_FAILURE, ERROR_INVALID_CLUSTER_SIZE, ERROR_UNKNOWN);
    for (what, size) in [
        ("sizeof(CUlaunchConfig)", size_of::<sys::CUlaunchConfig>()),
        ("sizeof(CUlaunchAttribute)", size_of::<sys::CUlaunchAttribute>()),
        ("offsetof(CUlaunchAttribute, value)", std::mem::offset_of!(sys::CUlaunchAttribute, value)),
        ("offsetof(CUlaunchConfig, hStream)", std::mem::offset_of!(sys::CUlaunchConfig, stream)),
        ("offsetof(CUlaunchConfig, numAttrs)", std::mem::offset_of!(sys::CUlaunchConfig, num_attrs)),
        ("offsetof(CUDA_MEMCPY3D, srcHost)", std::mem::offset_of!(sys::CUDA_MEMCPY3D, source.host)),
        ("offsetof(CUDA_MEMCPY3D, srcDevice)", std::mem::offset_of!(sys::CUDA_MEMCPY3D, source.device)),
        (
            "offsetof(CUDA_MEMCPY3D, dstMemoryType)",
            std::mem::offset_of!(sys::CUDA_MEMCPY3D, target.memory_type),
        ),
        ("offsetof(CUDA_MEMCPY3D, dstHost)", std::mem::offset_of!(sys::CUDA_MEMCPY3D, target.host)),
        ("offsetof(CUDA_MEMCPY3D, WidthInBytes)", std::mem::offset_of!(sys::CUDA_MEMCPY3D, width_in_bytes)),
        ("alignof(CUtensorMap)", align_of::<sys::CUtensorMap>()),
    ] {
        writeln!(text, r#"static_assert({what} == {size}, "{what}");"#).unwrap();
    }
    compile(&include, &text);
}

#[test]
fn nvrtc_library() {
    let Some(include) = include("nvrtc.h") else { return };
    let mut text = format!("#include <nvrtc.h>\n{DESCRIBE}");
    functions(&mut text, nvrtc::Calls::SIGNATURES);
    writeln!(text, "static_assert(NVRTC_ERROR_COMPILATION == {});", nvrtc::nvrtcResult::ERROR_COMPILATION.0)
        .unwrap();
    writeln!(
        text,
        "static_assert(NVRTC_ERROR_INVALID_OPTION == {});",
        nvrtc::nvrtcResult::ERROR_INVALID_OPTION.0
    )
    .unwrap();
    compile(&include, &text);
}

#[test]
fn nvml_library() {
    let Some(include) = include("nvml.h") else { return };
    let mut text = format!("#include <nvml.h>\n{DESCRIBE}");
    functions(&mut text, nvml::Calls::SIGNATURES);
    for (name, code) in [
        ("NVML_ERROR_NOT_SUPPORTED", nvml::nvmlReturn_t::ERROR_NOT_SUPPORTED),
        ("NVML_ERROR_NO_PERMISSION", nvml::nvmlReturn_t::ERROR_NO_PERMISSION),
        ("NVML_ERROR_INSUFFICIENT_SIZE", nvml::nvmlReturn_t::ERROR_INSUFFICIENT_SIZE),
    ] {
        writeln!(text, r#"static_assert({name} == {}, "{name}");"#, code.0).unwrap();
    }
    writeln!(text, "static_assert(NVML_CLOCK_SM == 1 && NVML_CLOCK_MEM == 2 && NVML_TEMPERATURE_GPU == 0);")
        .unwrap();
    compile(&include, &text);
}

#[test]
fn cublaslt_library() {
    let Some(include) = include("cublasLt.h") else { return };
    // Handles are pointers to structures there, whose size is none of our concern.
    let opaque = "\ntemplate <> struct size_of<cublasLtContext> { static constexpr std::size_t value = 0; };";
    let mut text = format!("#include <cublasLt.h>\n{DESCRIBE}{opaque}");
    for (name, parameters) in cublaslt::Calls::SIGNATURES {
        writeln!(text, r#"static_assert(count({name}) == {}, "{name}");"#, parameters.len()).unwrap();
    }
    let count = "\ntemplate <class R, class... A> constexpr std::size_t count(R (*)(A...)) { return sizeof...(A); }\n";
    let text = text.replacen("static_assert", &format!("{count}static_assert"), 1);
    let constants = "static_assert(CUBLASLT_MATMUL_DESC_TRANSA == 3 && CUBLASLT_MATMUL_DESC_TRANSB == 4 && \
        CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT == 5 && CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET == 6 && \
        CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES == 1 && CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK == 3 && \
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES == 5 && CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES == 8 && \
        CUBLASLT_REDUCTION_SCHEME_INPLACE == 1 && CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE == 2 && \
        CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE == 4 && CUBLAS_COMPUTE_64F == 70 && CUBLAS_COMPUTE_32F == 68 && \
        CUBLAS_COMPUTE_32F_FAST_TF32 == 77 && CUDA_R_32F == 0 && CUDA_R_64F == 1 && CUDA_R_16F == 2 && \
        CUDA_R_16BF == 14 && CUBLAS_OP_T == 1 && CUBLAS_STATUS_NOT_SUPPORTED == 15 && \
        CUBLAS_STATUS_EXECUTION_FAILED == 13);";
    let size = size_of::<cublaslt::cublasLtMatmulHeuristicResult_t>();
    let sizes = format!("static_assert(sizeof(cublasLtMatmulHeuristicResult_t) == {size});");
    compile(&include, &format!("{text}\n{constants}\n{sizes}\n"));
}
