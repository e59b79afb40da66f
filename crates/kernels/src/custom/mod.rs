//! Kernels of the user's own: CUDA C++ compiled at run time, launched by a checked signature.
//!
//! A [`CudaKernel`] is a source text and a [`Signature`]. Compiled code is kept on disk (`GRADEWISE_RTC_CACHE`), by source, options,
//! architecture and compiler. The source may include the headers of csrc, such as `gradewise/types.cuh`; in a kernel with
//! elements `T` that name is defined.

mod signature;

pub use signature::{Elements, Kind, Parameter, Signature, Size};

use crate::{
    Array, CudaDevice, DType, Device, Result,
    runtime::{
        cuda::{
            Args, Grid,
            generated::stored,
            kernels::{allow_shared, require_parameters},
            rtc,
        },
        fault::custom_advice,
    },
};
use gradewise_ffi::{Function, Module};
use signature::Bound;
use std::{
    borrow::Cow,
    collections::HashMap,
    path::Path,
    sync::{Mutex, PoisonError},
};

/// The name under which errors of the driver appear.
const NAME: &str = "custom kernel";

/// The code of a kernel.
#[derive(Clone, Debug)]
enum Code {
    /// CUDA C++, and the name by which messages call it.
    Source { file: String, text: Cow<'static, str> },
    /// A fat binary, machine code or PTX.
    Image { name: String, bytes: Vec<u8> },
}

/// The number of blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Blocks {
    /// A thread for each element of the first output.
    Elements,
    /// A block for each entry along an axis.
    Axis(String),
}

/// A kernel of the user's.
///
/// ```no_run
/// use gradewise_kernels::{Array, Device, custom::CudaKernel, signature};
///
/// const SOURCE: &str = r#"
/// extern "C" __global__ void scale(const float* x, float* y, long long n, float s) {
///     const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
///     if (i < n) y[i] = s * x[i];
/// }"#;
/// let kernel = CudaKernel::new("scale.cu", SOURCE, signature!(fn scale(x: &[f32; n], y: &mut [f32; n], n: usize, s: f32))?);
/// let device = Device::cuda(0)?;
/// let x = Array::ones([5], gradewise_kernels::DType::F32, &device)?;
/// let y = kernel.launch(&[&x], &[3.0])?;
/// # Ok::<(), gradewise_kernels::Error>(())
/// ```
#[derive(Debug)]
pub struct CudaKernel {
    code: Code,
    signature: Signature,
    options: Vec<String>,
    threads: u32,
    shared: u32,
    blocks: Blocks,
    functions: Mutex<HashMap<(usize, Option<DType>), Function>>,
}

impl CudaKernel {
    /// A kernel from CUDA C++. `file` is the text's name in the compiler's messages. By default there is a thread for each element of the
    /// first output, in blocks of 256.
    pub fn new(file: impl Into<String>, text: impl Into<Cow<'static, str>>, signature: Signature) -> Self {
        Self::of(Code::Source { file: file.into(), text: text.into() }, signature)
    }

    /// A kernel from a file of CUDA C++.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn from_file(path: impl AsRef<Path>, signature: Signature) -> Result<Self> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path)
            .map_err(|error| signature.refuse(format!("{}: {error}", path.display())))?;
        Ok(Self::new(path.display().to_string(), text, signature))
    }

    /// A kernel from a fat binary, machine code or PTX, without elements `T`. `name` is for messages.
    ///
    /// # Errors
    /// Bytes that are none of these (the error says what they are); a signature with `T`.
    pub fn from_image(name: &str, bytes: &[u8], signature: Signature) -> Result<Self> {
        if signature.is_generic() {
            return Err(signature.refuse("compiled code has one dtype; write it instead of T"));
        }
        gradewise_ffi::Image::recognise(name, bytes).map_err(|error| signature.refuse(error.to_string()))?;
        Ok(Self::of(Code::Image { name: name.to_owned(), bytes: bytes.to_vec() }, signature))
    }

    fn of(code: Code, signature: Signature) -> Self {
        Self {
            code,
            signature,
            options: Vec::new(),
            threads: Grid::THREADS,
            shared: 0,
            blocks: Blocks::Elements,
            functions: Mutex::default(),
        }
    }

    /// Threads of a block.
    #[must_use]
    pub fn threads(mut self, threads: u32) -> Self {
        self.threads = threads;
        self
    }

    /// A block for each entry along `axis` instead of a thread for each element.
    #[must_use]
    pub fn blocks_along(mut self, axis: &str) -> Self {
        self.blocks = Blocks::Axis(axis.to_owned());
        self
    }

    /// Bytes of dynamic shared memory of a block.
    #[must_use]
    pub fn shared(mut self, bytes: u32) -> Self {
        self.shared = bytes;
        self
    }

    /// One more option of the compiler, such as `--use_fast_math`.
    #[must_use]
    pub fn option(mut self, option: &str) -> Self {
        self.options.push(option.to_owned());
        self
    }

    /// What the kernel takes.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// The dtypes that it serves: all where elements are `T`, otherwise that of its first array.
    pub fn dtypes(&self) -> Vec<DType> {
        let mut arrays = self.signature.inputs().chain(self.signature.outputs());
        match arrays.next() {
            _ if self.signature.is_generic() => DType::ALL.to_vec(),
            Some((_, Elements::Of(dtype), _)) => vec![dtype],
            _ => Vec::new(),
        }
    }

    /// Machine code for an architecture such as `sm_90`, with `T` as given: compiled, or from disk. Needs no GPU.
    ///
    /// # Errors
    /// [`Error::CustomKernel`](crate::Error::CustomKernel) with the compiler's log, which names the file, the line and the problem; if the
    /// run-time compiler is missing; if the kernel was given as compiled code.
    pub fn compile(&self, architecture: &str, element: Option<DType>) -> Result<Vec<u8>> {
        let Code::Source { file, text } = &self.code else {
            return Err(self.signature.refuse("it was given as compiled code"));
        };
        let compiler = rtc::compiler().map_err(|error| self.signature.refuse(error.to_string()))?;
        let mut options = self.options.clone();
        let mut text = Cow::Borrowed(text.as_ref());
        if let Some(dtype) = element {
            let name = stored(dtype);
            // An alias rather than a macro, which would also apply to the compiler's own headers. `#line` makes lines count from the user's
            // first.
            let called = file.replace('\\', "/");
            let head = format!("#include \"gradewise/types.cuh\"\nusing T = {name};\n#line 1 \"{called}\"\n");
            text = Cow::Owned(head + &text);
        }
        if is_debug() {
            options.extend(["-DGRADEWISE_DEBUG".to_owned(), "--generate-line-info".to_owned()]);
        }
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        rtc::compile_source(compiler, architecture, (file, &text), &options)
            .map_err(|problem| self.signature.refuse(problem))
    }

    /// Compiles and loads the kernel for `device`, for elements `T` of `dtype` (ignored without `T`), so that the first launch does not
    /// wait for that.
    ///
    /// # Errors
    /// As [`compile`](Self::compile); a kernel that the code lacks, with the names it has; parameters whose sizes differ from the
    /// signature's.
    pub fn warm_up(&self, device: &CudaDevice, dtype: DType) -> Result<()> {
        self.function(device, self.signature.is_generic().then_some(dtype)).map(|_| ())
    }

    fn function(&self, device: &CudaDevice, element: Option<DType>) -> Result<Function> {
        let key = (device.ordinal(), element);
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = functions.get(&key) {
            return Ok(function.clone());
        }
        let refuse = |error: gradewise_ffi::Error| {
            let problem = match &error {
                gradewise_ffi::Error::Kernel { known, .. }
                    if known.iter().any(|name| name.starts_with("_Z")) =>
                {
                    format!("{error}; names that begin with _Z are of C++: declare the kernel extern \"C\"")
                }
                _ => format!("{error}{}", custom_advice(&error, device.info().compute_capability)),
            };
            self.signature.refuse(problem)
        };
        let started = std::time::Instant::now();
        let module = match &self.code {
            Code::Image { name, bytes } => Module::load(device.context(), name, bytes),
            Code::Source { file, .. } => {
                let (major, minor) = device.info().compute_capability;
                let image = self.compile(&format!("sm_{major}{minor}"), element)?;
                Module::load(device.context(), file, &image)
            }
        }
        .map_err(refuse)?;
        let function = module.function(&self.signature.name).map_err(refuse)?;
        require_parameters(&function, &self.signature.parameter_sizes()).map_err(refuse)?;
        allow_shared(device.context(), &function).map_err(refuse)?;
        let seconds = started.elapsed().as_secs_f64();
        tracing::info!("kernel `{}` compiled or read, and loaded in {seconds:.2} s", self.signature.name);
        functions.insert(key, function.clone());
        Ok(function)
    }

    /// Runs the kernel. `inputs` are in the order of the signature; `scalars` are the values of its scalars other than sizes of inputs, in
    /// order. Returns the outputs. Nothing is launched for outputs without elements.
    ///
    /// # Errors
    /// [`Error::CustomKernel`](crate::Error::CustomKernel) for a call that does not match the signature: numbers of inputs or scalars,
    /// dtypes, shapes, an array that is not contiguous or not on a CUDA device; as [`warm_up`](Self::warm_up); from the driver.
    pub fn launch(&self, inputs: &[&Array], scalars: &[f64]) -> Result<Vec<Array>> {
        let call = self.check(inputs, scalars)?;
        let Device::Cuda(device) = &call.device else {
            return Err(self.signature.refuse(format!(
                "its inputs are on {}, and it runs on CUDA devices; move them with to_device, or call the reference",
                call.device
            )));
        };
        let outputs = call
            .outputs
            .iter()
            .map(|(dtype, shape)| Array::for_kernel(NAME, shape.clone(), *dtype, device))
            .collect::<Result<Vec<_>>>()?;
        if outputs.iter().all(|output| output.elements() == 0) {
            return Ok(outputs);
        }
        let function = self.function(device, self.signature.is_generic().then_some(call.element))?;
        let blocks = match &self.blocks {
            Blocks::Elements => outputs[0].elements().div_ceil(self.threads.max(1) as usize),
            Blocks::Axis(axis) => call.bound.get(axis).ok_or_else(|| {
                self.signature.refuse(format!("there is no axis `{axis}` to have blocks along"))
            })?,
        };
        let (mut inputs, mut written, mut scalars) = (inputs.iter(), outputs.iter(), call.scalars.iter());
        let mut args = Args::new();
        for parameter in &self.signature.parameters {
            args = match &parameter.kind {
                Kind::Input(..) => args.optional(inputs.next().copied()),
                Kind::Output(..) => args.optional(written.next()),
                Kind::Size => args.size(call.bound.get(&parameter.name).unwrap_or(0)),
                Kind::Int => args.int(scalars.next().map_or(0, |value| *value as i32)),
                Kind::Float => args.float(scalars.next().map_or(0.0, |value| *value as f32)),
                Kind::Double => args.double(scalars.next().copied().unwrap_or(0.0)),
            };
        }
        let grid = Grid::blocks(blocks.max(1), self.threads).shared(self.shared as usize);
        // SAFETY: 1: `check` compared the inputs with the signature, of which the outputs were made; the user's code does what its
        // signature says. 2: outputs are new. 3: the user's threads and shared memory. 4: there are no addresses but those of arrays. 5:
        // not overlapped.
        unsafe { device.launch_function(NAME, &function, grid, args)? };
        Ok(outputs)
    }

    /// Compares a call with the signature.
    fn check(&self, inputs: &[&Array], scalars: &[f64]) -> Result<Checked> {
        let refuse = |problem: String| self.signature.refuse(problem);
        let expected: Vec<_> = self.signature.inputs().collect();
        if inputs.len() != expected.len() {
            let names: Vec<&str> = expected.iter().map(|(name, ..)| *name).collect();
            return Err(refuse(format!(
                "{} inputs were given, expected {} ({})",
                inputs.len(),
                expected.len(),
                names.join(", ")
            )));
        }
        let device = inputs.first().map_or(Device::Cpu, |input| input.device());
        let mut element: Option<(DType, &str)> = None;
        let mut bound = Bound::default();
        for (&input, (name, elements, sizes)) in inputs.iter().zip(&expected) {
            let (dtype, wanted, why) = match (elements, element) {
                (Elements::Of(dtype), _) => (input.dtype(), *dtype, String::new()),
                (Elements::Generic, Some((dtype, of))) => (input.dtype(), dtype, format!(", that of `{of}`")),
                (Elements::Generic, None) => {
                    element = Some((input.dtype(), name));
                    (input.dtype(), input.dtype(), String::new())
                }
            };
            if dtype != wanted {
                return Err(refuse(format!("`{name}` is {dtype}, expected {wanted}{why}")));
            }
            if input.device() != device {
                return Err(refuse(format!("`{name}` is on {}, expected {device}", input.device())));
            }
            if input.rank() != sizes.len() {
                return Err(refuse(format!(
                    "`{name}` has shape {}, expected {} axes",
                    input.shape(),
                    sizes.len()
                )));
            }
            for (axis, size) in sizes.iter().enumerate() {
                bound.bind(size, input.dims()[axis], name).map_err(|problem| {
                    refuse(format!("`{name}` has shape {}: axis {axis} {problem}", input.shape()))
                })?;
            }
            if !input.is_contiguous() {
                return Err(refuse(format!(
                    "`{name}` is a view of strides {:?}; call contiguous() first",
                    input.strides()
                )));
            }
        }
        let wanted: Vec<&Parameter> = self.signature.scalars().collect();
        if scalars.len() != wanted.len() {
            let names: Vec<&str> = wanted.iter().map(|parameter| parameter.name.as_str()).collect();
            return Err(refuse(format!(
                "{} scalars were given, expected {} ({})",
                scalars.len(),
                wanted.len(),
                names.join(", ")
            )));
        }
        let mut numbers = Vec::new();
        for (parameter, &value) in wanted.iter().zip(scalars) {
            let Parameter { name, kind } = parameter;
            let whole = value.fract() == 0.0 && value.abs() < 9e15;
            match kind {
                Kind::Size if whole && value >= 0.0 => {
                    let size = Size::Called(name.clone());
                    bound
                        .bind(&size, value as usize, name)
                        .map_err(|problem| refuse(format!("`{name}` {problem}")))?;
                    continue;
                }
                Kind::Int if whole && (value as i64) == i64::from(value as i32) => {}
                Kind::Size | Kind::Int => {
                    return Err(refuse(format!("`{name}` is {value}, expected a whole number in its range")));
                }
                _ => {}
            }
            numbers.push(value);
        }
        let element = element.map_or(DType::F32, |(dtype, _)| dtype);
        let outputs = self
            .signature
            .outputs()
            .map(|(name, elements, sizes)| {
                let dtype = match elements {
                    Elements::Of(dtype) => dtype,
                    Elements::Generic => element,
                };
                let shape = sizes.iter().map(|size| bound.of(size)).collect::<Option<Vec<_>>>();
                Ok((dtype, shape.ok_or_else(|| refuse(format!("a size of `{name}` is not known")))?))
            })
            .collect::<Result<_>>()?;
        Ok(Checked { device, element, bound, scalars: numbers, outputs })
    }
}

/// A call that fits the signature.
struct Checked {
    device: Device,
    element: DType,
    bound: Bound,
    /// Values of scalars that are no sizes, in order.
    scalars: Vec<f64>,
    outputs: Vec<(DType, Vec<usize>)>,
}

/// Whether kernels are compiled with the assertions of `gradewise/debug.cuh`: in [debug mode](crate::runtime::debug).
pub fn is_debug() -> bool {
    crate::runtime::debug::is_on()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel() -> CudaKernel {
        CudaKernel::new(
            "mine.cu",
            "extern \"C\" __global__ void rows(const T* x) {}",
            crate::signature!(fn rows(x: &[T; n, 3], g: &[T; n], y: &mut [T; n], n: usize, s: f32, k: i32))
                .unwrap(),
        )
    }

    #[test]
    fn calls_are_compared_with_the_signature() {
        let cpu = &Device::Cpu;
        let array = |shape: &[usize], dtype| Array::ones(shape, dtype, cpu).unwrap();
        let (x, g) = (array(&[4, 3], DType::F32), array(&[4], DType::F32));
        let refuse = |inputs: &[&Array], scalars: &[f64], part: &str| {
            let message = kernel().launch(inputs, scalars).unwrap_err().to_string();
            assert!(message.contains(part) && message.contains("`rows`"), "{part}: {message}");
        };
        refuse(&[&x], &[1.0, 2.0], "1 inputs were given, expected 2 (x, g)");
        refuse(&[&x, &array(&[4], DType::F64)], &[1.0, 2.0], "`g` is f64, expected f32, that of `x`");
        refuse(&[&x, &array(&[5], DType::F32)], &[1.0, 2.0], "axis 0 is 5, but `n` is 4 by `x`");
        refuse(&[&array(&[4, 2], DType::F32), &g], &[1.0, 2.0], "axis 1 is 2, expected 3");
        refuse(&[&g, &g], &[1.0, 2.0], "expected 2 axes");
        let view = array(&[3, 4], DType::F32).transpose(0, 1).unwrap();
        refuse(&[&view, &g], &[1.0, 2.0], "contiguous()");
        refuse(&[&x, &g], &[1.0], "1 scalars were given, expected 2 (s, k)");
        refuse(&[&x, &g], &[1.0, 2.5], "`k` is 2.5");
        refuse(&[&x, &g], &[1.0, 2.0], "on cpu, and it runs on CUDA devices");
        let checked = kernel().check(&[&x, &g], &[1.0, 2.0]).unwrap();
        assert_eq!(checked.outputs, [(DType::F32, vec![4])]);
        assert_eq!((checked.element, checked.scalars), (DType::F32, vec![1.0, 2.0]));
    }

    #[test]
    fn code_of_another_kind_is_called_by_its_name() {
        let signature = || crate::signature!(fn f(x: &[f32; n], y: &mut [f32; n], n: usize)).unwrap();
        let refuse =
            |bytes: &[u8]| CudaKernel::from_image("f.bin", bytes, signature()).unwrap_err().to_string();
        let message = refuse(b"extern \"C\" __global__ void f() {}");
        assert!(message.contains("CUDA C++ source") && message.contains("f.bin"), "{message}");
        assert!(refuse(b"\x7fELF").contains("cut off"));
        assert!(refuse(b"hello").contains("not PTX"));
        assert!(CudaKernel::from_image("f", b".version 8.0\n.target sm_75\n", signature()).is_ok());
        let generic = crate::signature!(fn f(x: &[T; n], y: &mut [T; n])).unwrap();
        assert!(CudaKernel::from_image("f", b"", generic).unwrap_err().to_string().contains("instead of T"));
        let missing = CudaKernel::from_file("/nonexistent/mine.cu", signature()).unwrap_err().to_string();
        assert!(missing.contains("mine.cu"), "{missing}");
    }

    #[test]
    fn sources_compile_for_each_element_and_mistakes_show_their_line() {
        if let Err(error) = rtc::compiler() {
            eprintln!("nothing compiled: {error}");
            return;
        }
        let text = "#include \"gradewise/types.cuh\"\nextern \"C\" __global__ void f(const T* x, T* y, long long n) {\n    \
                    if (thread_index() < n) y[thread_index()] = narrow<T>(2 * widen(x[thread_index()]));\n}\n";
        let signature = || crate::signature!(fn f(x: &[T; n], y: &mut [T; n], n: usize)).unwrap();
        let good = CudaKernel::new("mine.cu", text, signature());
        let images: Vec<_> =
            good.dtypes().into_iter().map(|dtype| good.compile("sm_90", Some(dtype)).unwrap()).collect();
        assert!(images.iter().all(|image| image.starts_with(b"\x7fELF")));
        assert!(images.windows(2).all(|pair| pair[0] != pair[1]), "each for its own dtype");
        assert_eq!(good.compile("sm_90", Some(DType::F32)).unwrap(), images[1], "from disk");
        let bad = CudaKernel::new("mine.cu", text.replace("2 *", "twice *"), signature());
        let message = bad.compile("sm_90", Some(DType::F32)).unwrap_err().to_string();
        for part in ["mine.cu(3)", "twice", "y[thread_index()] = ", "^"] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
}
