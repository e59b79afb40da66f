//! cuBLASLt: matrix products by NVIDIA's library, where it is installed.
//!
//! The library is found under its own names by the loader, in `CUDA_HOME` or `CUDA_PATH`, in the Python environment in
//! use (the wheels `nvidia-cublas`), and in the folders that `scripts/get-nvcc` fills; the variable
//! `GRADEWISE_CUBLASLT` names a file or a folder and ends the search.
//!
//! Results are deterministic: algorithms that accumulate partial sums in an unspecified order are excluded.

mod calls;
mod product;

pub use calls::{Calls, Object, cublasLtMatmulAlgo_t, cublasLtMatmulHeuristicResult_t, cublasStatus_t};
pub use product::{Element, Product};

use crate::{
    Context, DeviceMemory, Dynamic, Error, Provider, Result, Stream, search::Search, sys::CUdeviceptr,
};
use product::Layout;
use std::{
    ffi::{c_int, c_void},
    fmt,
    sync::Arc,
};

/// The library. Cheap to clone.
#[derive(Clone)]
pub struct CublasLt(Arc<Calls>);

impl std::ops::Deref for CublasLt {
    type Target = Calls;

    fn deref(&self) -> &Calls {
        &self.0
    }
}

impl CublasLt {
    const SEARCH: Search = Search {
        variable: "GRADEWISE_CUBLASLT",
        names: if cfg!(windows) {
            &["cublasLt64_13.dll", "cublasLt64_12.dll"]
        } else {
            &["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"]
        },
        wheel: "cublas",
    };

    /// Opens the library.
    ///
    /// # Errors
    /// [`Error::Library`] with everything tried.
    pub fn load() -> Result<Self> {
        const HINT: &str = "install it with `pip install nvidia-cublas`, and set GRADEWISE_CUBLASLT to the library or its folder";
        let candidates = Self::SEARCH.candidates();
        let paths: Vec<&str> = candidates.iter().map(String::as_str).collect();
        Ok(Self::new(Dynamic::open(Calls::LIBRARY, &paths, HINT)?))
    }

    /// A library whose functions come from `provider`.
    pub fn new(provider: impl Provider + 'static) -> Self {
        Self(Arc::new(Calls::new(Box::new(provider))))
    }

    /// The library's version: major, minor, patch.
    ///
    /// # Errors
    /// From the library.
    pub fn version(&self) -> Result<(u32, u32, u32)> {
        let part = |which| {
            let mut value = 0;
            // SAFETY: the pointer is valid for the write.
            unsafe { self.cublasLtGetProperty(which, &mut value)? };
            Ok::<_, Error>(value.max(0) as u32)
        };
        Ok((part(0)?, part(1)?, part(2)?))
    }
}

impl fmt::Debug for CublasLt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CublasLt({})", self.provider())
    }
}

type Release = unsafe fn(&Calls, Object) -> Result<()>;

/// An object of the library, owned.
struct Owned {
    library: CublasLt,
    context: Context,
    raw: Object,
    release: Release,
}

// SAFETY: an object is an opaque handle that the library accepts from any thread; it is not modified after its creation.
unsafe impl Send for Owned {}
// SAFETY: as above.
unsafe impl Sync for Owned {}

impl Owned {
    fn new(
        library: &CublasLt,
        context: &Context,
        release: Release,
        create: impl FnOnce(&Calls, *mut Object) -> Result<()>,
    ) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        create(library, &mut raw)?;
        Ok(Self { library: library.clone(), context: context.clone(), raw, release })
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: created in `new`, released once.
        self.context.release(|_| unsafe { (self.release)(&self.library, self.raw) });
    }
}

/// The library in a context. Cheap to clone.
#[derive(Clone)]
pub struct Handle(Arc<Owned>);

impl Handle {
    /// Prepares the library for the context's device.
    ///
    /// # Errors
    /// From the driver or the library.
    pub fn new(library: &CublasLt, context: &Context) -> Result<Self> {
        context.bind()?;
        // SAFETY: the pointer is valid for the write; the context is bound.
        let create = |calls: &Calls, raw: *mut Object| unsafe { calls.cublasLtCreate(raw) };
        Ok(Self(Arc::new(Owned::new(library, context, Calls::cublasLtDestroy, create)?)))
    }

    /// Up to `most` algorithms for a product with at most `workspace` bytes of workspace, the fastest by the library's estimate first.
    /// Takes about ten microseconds, so cache the result.
    ///
    /// # Errors
    /// [`Error::Argument`] if a size is zero or does not fit 31 bits; [`Error::Status`] from the library, `NOT_SUPPORTED` if it has no
    /// algorithm.
    pub fn plan(&self, product: &Product, workspace: usize, most: usize) -> Result<Plan> {
        let [b, a, out] = product.layouts()?;
        self.0.context.bind()?;
        let description = self.description(product)?;
        let (b, a, out) = (self.layout(product, b)?, self.layout(product, a)?, self.layout(product, out)?);
        let preference = self.preference(product, workspace)?;
        let empty = cublasLtMatmulHeuristicResult_t {
            algo: cublasLtMatmulAlgo_t::default(),
            workspace_size: 0,
            state: cublasStatus_t::NOT_SUPPORTED,
            waves_count: 0.0,
            reserved: [0; 4],
        };
        let mut algorithms = vec![empty; most.clamp(1, 64)];
        let mut found = 0;
        // SAFETY: all objects are alive; the array has room for so many results.
        unsafe {
            self.0.library.cublasLtMatmulAlgoGetHeuristic(
                self.0.raw,
                description.raw,
                b.raw,
                a.raw,
                out.raw,
                out.raw,
                preference.raw,
                algorithms.len() as c_int,
                algorithms.as_mut_ptr(),
                &mut found,
            )?;
        }
        algorithms.truncate(found.max(0) as usize);
        algorithms.retain(|result| result.state == cublasStatus_t::SUCCESS);
        if algorithms.is_empty() {
            self.0.library.check("cublasLtMatmulAlgoGetHeuristic", cublasStatus_t::NOT_SUPPORTED)?;
        }
        let double = product.element == Element::F64;
        Ok(Plan { handle: self.clone(), description, layouts: [b, a, out], algorithms, double })
    }

    fn description(&self, product: &Product) -> Result<Owned> {
        const TRANSPOSE_FIRST: c_int = 3;
        const TRANSPOSE_SECOND: c_int = 4;
        let (compute, scale) = (product.element.compute(), product.element.scale());
        let made = self.own(Calls::cublasLtMatmulDescDestroy, |calls, raw| {
            // SAFETY: the pointer is valid for the write.
            unsafe { calls.cublasLtMatmulDescCreate(raw, compute, scale) }
        })?;
        // cuBLASLt is column-major, so our second factor is its first.
        for (which, transposed) in
            [(TRANSPOSE_FIRST, product.transpose_b), (TRANSPOSE_SECOND, product.transpose_a)]
        {
            let value = c_int::from(transposed);
            // SAFETY: the attribute is a number of this type.
            unsafe {
                made.library.cublasLtMatmulDescSetAttribute(made.raw, which, (&raw const value).cast(), 4)?
            };
        }
        Ok(made)
    }

    fn layout(&self, product: &Product, layout: Layout) -> Result<Owned> {
        const BATCH_COUNT: c_int = 5;
        const BATCH_STRIDE: c_int = 6;
        let made = self.own(Calls::cublasLtMatrixLayoutDestroy, |calls, raw| {
            let Layout { rows, columns, stride, .. } = layout;
            // SAFETY: the pointer is valid for the write.
            unsafe { calls.cublasLtMatrixLayoutCreate(raw, product.element.dtype(), rows, columns, stride) }
        })?;
        if product.batch > 1 {
            let (count, stride) = (product.batch as i32, layout.batch_stride);
            // SAFETY: the attributes are numbers of these types.
            unsafe {
                made.library.cublasLtMatrixLayoutSetAttribute(
                    made.raw,
                    BATCH_COUNT,
                    (&raw const count).cast(),
                    4,
                )?;
                made.library.cublasLtMatrixLayoutSetAttribute(
                    made.raw,
                    BATCH_STRIDE,
                    (&raw const stride).cast(),
                    8,
                )?;
            }
        }
        Ok(made)
    }

    fn preference(&self, product: &Product, workspace: usize) -> Result<Owned> {
        const WORKSPACE: c_int = 1;
        const REDUCTIONS: c_int = 3;
        const ALIGNMENTS: [c_int; 4] = [5, 6, 7, 8];
        /// Split-K reductions through the workspace, in a fixed order. The in-place reduction is excluded: it uses atomic additions.
        const IN_ORDER: u32 = 2 | 4;
        let made = self.own(Calls::cublasLtMatmulPreferenceDestroy, |calls, raw| {
            // SAFETY: the pointer is valid for the write.
            unsafe { calls.cublasLtMatmulPreferenceCreate(raw) }
        })?;
        let (workspace, reductions, alignment) = (workspace as u64, IN_ORDER, product.alignment.min(256));
        let set = |which, value: *const c_void, bytes| {
            // SAFETY: the callers below pass the address of a number of `bytes` bytes, the attribute's size.
            unsafe { made.library.cublasLtMatmulPreferenceSetAttribute(made.raw, which, value, bytes) }
        };
        set(WORKSPACE, (&raw const workspace).cast(), 8)?;
        set(REDUCTIONS, (&raw const reductions).cast(), 4)?;
        for which in ALIGNMENTS {
            set(which, (&raw const alignment).cast(), 4)?;
        }
        Ok(made)
    }

    fn own(&self, release: Release, create: impl FnOnce(&Calls, *mut Object) -> Result<()>) -> Result<Owned> {
        Owned::new(&self.0.library, &self.0.context, release, create)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({:?}, {:?})", self.0.library, self.0.context)
    }
}

/// A product and the algorithms for it.
pub struct Plan {
    handle: Handle,
    description: Owned,
    /// Layouts of B, A and Out.
    layouts: [Owned; 3],
    algorithms: Vec<cublasLtMatmulHeuristicResult_t>,
    double: bool,
}

impl Plan {
    /// Number of algorithms, at least one.
    pub fn algorithms(&self) -> usize {
        self.algorithms.len()
    }

    /// Bytes of workspace that algorithm number `algorithm` needs; `None` if there is no such algorithm.
    pub fn workspace(&self, algorithm: usize) -> Option<usize> {
        self.algorithms.get(algorithm).map(|result| result.workspace_size)
    }

    /// Queues Out = α · A · B + β · Out, computed by algorithm number `algorithm`. If β = 0, the contents of Out are not read.
    ///
    /// # Safety
    /// `a`, `b` and `out` must be addresses of matrices of the plan's shapes, types and alignment. Until the work is done, nothing else may
    /// write to `a` and `b`, or access `out`.
    ///
    /// # Errors
    /// [`Error::Argument`] if there is no such algorithm, or the workspace is too small for it; [`Error::Status`] from the library.
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn run(
        &self,
        algorithm: usize,
        stream: &Stream,
        alpha: f64,
        [a, b]: [CUdeviceptr; 2],
        beta: f64,
        out: CUdeviceptr,
        workspace: Option<&DeviceMemory>,
    ) -> Result<()> {
        let refuse = |problem| Err(Error::Argument { call: "cublaslt::Plan::run", problem });
        let Some(way) = self.algorithms.get(algorithm) else {
            return refuse(format!("algorithm {algorithm} of {}", self.algorithms.len()));
        };
        let (space, bytes) = workspace.map_or((0, 0), |block| (block.pointer(), block.bytes()));
        if bytes < way.workspace_size {
            return refuse(format!("a workspace of {bytes} bytes, {} are needed", way.workspace_size));
        }
        let owned = &self.handle.0;
        owned.context.bind()?;
        let address = |address: CUdeviceptr| std::ptr::without_provenance_mut::<c_void>(address as usize);
        let (single, double) = ([alpha as f32, beta as f32], [alpha, beta]);
        let [alpha, beta]: [*const c_void; 2] = if self.double {
            [(&raw const double[0]).cast(), (&raw const double[1]).cast()]
        } else {
            [(&raw const single[0]).cast(), (&raw const single[1]).cast()]
        };
        let [b_layout, a_layout, out_layout] = &self.layouts;
        // SAFETY: all objects are alive; α and β have the type that the description states and are read before the call
        // returns; the workspace has the bytes stated; the caller vouches for the matrices.
        unsafe {
            owned.library.cublasLtMatmul(
                owned.raw,
                self.description.raw,
                alpha,
                address(b),
                b_layout.raw,
                address(a),
                a_layout.raw,
                beta,
                address(out),
                out_layout.raw,
                address(out),
                out_layout.raw,
                &way.algo,
                address(space),
                bytes,
                stream.raw(),
            )
        }
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plan({} algorithms, {:?})", self.algorithms.len(), self.handle)
    }
}
