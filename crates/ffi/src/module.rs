//! Modules: compiled kernels, and how they are launched.

use crate::{Context, Error, Result, Stream, sys::*};
use std::{
    ffi::{CStr, CString, c_int, c_uint, c_void},
    sync::Arc,
};

/// Compiled kernels in a context. Cheap to clone; unloaded when the last handle is dropped.
#[derive(Clone, Debug)]
pub struct Module(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    context: Context,
    raw: CUmodule,
    name: String,
}

impl Module {
    /// Loads a fat binary, a cubin, or PTX (text with a zero byte at the end). `name` is for messages.
    ///
    /// # Errors
    /// `ERROR_INVALID_IMAGE` or `ERROR_NO_BINARY_FOR_GPU` if there is nothing in it for this device, with the words of
    /// the just-in-time compiler.
    pub fn load(context: &Context, name: &str, image: &[u8]) -> Result<Self> {
        context.bind()?;
        let mut log = vec![0u8; 8 << 10];
        let mut names = [jit_option::ERROR_LOG_BUFFER, jit_option::ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values = [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(log.len())];
        let mut raw = CUmodule::NULL;
        // The driver reads up to the size that the image's header states; text ends with a zero.
        // SAFETY: all pointers are valid; the log's size is what is stated; the context is bound.
        let result = unsafe {
            context.driver().cuModuleLoadDataEx(
                &mut raw,
                image.as_ptr().cast::<c_void>(),
                names.len() as c_uint,
                names.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        result.map_err(|error| match error {
            Error::Call { call, code, name: code_name, text } => {
                let said = CStr::from_bytes_until_nul(&log).unwrap_or_default().to_string_lossy();
                let said = if said.trim().is_empty() { String::new() } else { format!("; {}", said.trim()) };
                Error::Call { call, code, name: code_name, text: format!("{text} (module `{name}`){said}") }
            }
            other => other,
        })?;
        Ok(Self(Arc::new(Inner { context: context.clone(), raw, name: name.to_owned() })))
    }

    /// The name given at loading.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// A kernel by its name.
    ///
    /// # Errors
    /// [`Error::Kernel`] with the names there are, as far as the driver tells.
    pub fn function(&self, name: &str) -> Result<Function> {
        let driver = self.0.context.driver();
        let missing = || Error::Kernel {
            module: self.0.name.clone(),
            kernel: name.to_owned(),
            known: self.function_names().unwrap_or_default(),
        };
        let symbol = CString::new(name).map_err(|_| missing())?;
        self.0.context.bind()?;
        let mut raw = CUfunction::NULL;
        // SAFETY: all pointers are valid; the module is loaded.
        let result = unsafe { driver.cuModuleGetFunction(&mut raw, self.0.raw, symbol.as_ptr()) };
        match result {
            Ok(()) => Ok(Function { module: self.clone(), raw, name: name.into() }),
            Err(error) if error.code() == Some(CUresult::ERROR_NOT_FOUND) => Err(missing()),
            Err(error) => Err(error),
        }
    }

    /// The names of the kernels (drivers from 12.4 on).
    ///
    /// # Errors
    /// From the driver.
    pub fn function_names(&self) -> Result<Vec<String>> {
        let driver = self.0.context.driver();
        self.0.context.bind()?;
        let mut count = 0;
        // SAFETY: the pointer is valid for the write; the module is loaded.
        unsafe { driver.cuModuleGetFunctionCount(&mut count, self.0.raw)? };
        let mut functions = vec![CUfunction::NULL; count as usize];
        // SAFETY: the array has room for `count` handles.
        unsafe { driver.cuModuleEnumerateFunctions(functions.as_mut_ptr(), count, self.0.raw)? };
        functions
            .into_iter()
            .map(|function| {
                let mut name = std::ptr::null();
                // SAFETY: the pointer is valid for the write; the handle is the driver's own.
                unsafe { driver.cuFuncGetName(&mut name, function)? };
                // SAFETY: the driver gave the address of a string that lives as long as the module.
                Ok(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
            })
            .collect()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: loaded in `load`, unloaded once; no `Function` is left, for each holds the module.
        let release = || unsafe { self.context.driver().cuModuleUnload(self.raw) };
        self.context.park(self.context.bind().and_then(|()| release()));
    }
}

/// A kernel; keeps its module loaded.
#[derive(Clone, Debug)]
pub struct Function {
    module: Module,
    raw: CUfunction,
    name: Arc<str>,
}

/// Sizes of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block in bytes.
    pub shared: u32,
    /// Blocks of a cluster along x, y, z; 1 everywhere for none.
    pub cluster: [u32; 3],
}

impl LaunchConfig {
    /// A launch along x without dynamic shared memory.
    pub const fn linear(blocks: u32, threads: u32) -> Self {
        Self { grid: [blocks, 1, 1], block: [threads, 1, 1], shared: 0, cluster: [1; 3] }
    }
}

impl Function {
    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The driver's handle.
    pub fn raw(&self) -> CUfunction {
        self.raw
    }

    /// An attribute of [`function_attribute`](crate::sys::function_attribute).
    ///
    /// # Errors
    /// From the driver.
    pub fn attribute(&self, which: c_int) -> Result<i32> {
        self.context().bind()?;
        let mut value = 0;
        // SAFETY: the pointer is valid for the write; the kernel's module is loaded.
        unsafe { self.context().driver().cuFuncGetAttribute(&mut value, which, self.raw)? };
        Ok(value)
    }

    /// The sizes of the kernel's parameters in bytes, in order (drivers from 12.4 on).
    ///
    /// # Errors
    /// From the driver.
    pub fn parameter_sizes(&self) -> Result<Vec<usize>> {
        self.context().bind()?;
        let mut sizes = Vec::new();
        loop {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: both pointers are valid for the write; an index past the last parameter is an error of the call.
            let result = unsafe {
                self.context().driver().cuFuncGetParamInfo(self.raw, sizes.len(), &mut offset, &mut size)
            };
            match result {
                Ok(()) => sizes.push(size),
                Err(error) if error.code() == Some(CUresult::ERROR_INVALID_VALUE) => return Ok(sizes),
                Err(error) => return Err(error),
            }
        }
    }

    /// Lets launches ask for up to `bytes` of dynamic shared memory.
    ///
    /// # Errors
    /// From the driver, if the device does not have that much for one block.
    pub fn allow_shared(&self, bytes: u32) -> Result<()> {
        self.context().bind()?;
        let which = function_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the kernel's module is loaded.
        unsafe { self.context().driver().cuFuncSetAttribute(self.raw, which, bytes as c_int) }
    }

    /// Blocks of `threads` threads with `shared` bytes of dynamic shared memory that fit on a multiprocessor together.
    ///
    /// # Errors
    /// From the driver.
    pub fn occupancy(&self, threads: u32, shared: usize) -> Result<u32> {
        self.context().bind()?;
        let mut blocks = 0;
        // SAFETY: the pointer is valid for the write; the kernel's module is loaded.
        unsafe {
            self.context().driver().cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut blocks,
                self.raw,
                threads as c_int,
                shared,
            )?;
        }
        Ok(blocks.max(0) as u32)
    }

    /// Refuses a launch that the device cannot run.
    ///
    /// # Errors
    /// [`Error::Launch`] with the size at fault and the device's limit.
    pub fn validate(&self, config: &LaunchConfig) -> Result<()> {
        let info = self.context().info();
        let refuse = |what, actual: u64, limit: u64| {
            Err(Error::Launch { kernel: self.name.to_string(), what, actual, limit })
        };
        const GRID: [&str; 3] = ["grid size along x", "grid size along y", "grid size along z"];
        const BLOCK: [&str; 3] = ["block size along x", "block size along y", "block size along z"];
        for axis in 0..3 {
            let (grid, block) = (config.grid[axis], config.block[axis]);
            if grid == 0 || grid > info.max_grid[axis] {
                return refuse(GRID[axis], grid.into(), info.max_grid[axis].into());
            }
            if block == 0 || block > info.max_block[axis] {
                return refuse(BLOCK[axis], block.into(), info.max_block[axis].into());
            }
        }
        let threads: u64 = config.block.iter().map(|&size| u64::from(size)).product();
        if threads > info.max_threads_per_block.into() {
            return refuse("number of threads per block", threads, info.max_threads_per_block.into());
        }
        if config.shared as usize > info.max_shared_memory {
            let limit = info.max_shared_memory as u64;
            return refuse("dynamic shared memory in bytes", config.shared.into(), limit);
        }
        Ok(())
    }

    /// Queues the kernel.
    ///
    /// # Safety
    /// `arguments` must point to one value for each parameter of the kernel, of its type; device memory they name must
    /// stay allocated until the kernel is done, and the kernel must be correct for these sizes.
    ///
    /// # Errors
    /// [`Error::Launch`] if the sizes exceed the device's limits; from the driver.
    pub unsafe fn launch(
        &self,
        config: &LaunchConfig,
        stream: &Stream,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        self.validate(config)?;
        self.context().bind()?;
        let (driver, LaunchConfig { grid, block, shared, cluster }) = (self.context().driver(), *config);
        if cluster == [1; 3] {
            // SAFETY: the caller vouches for the arguments; the sizes were checked.
            return unsafe {
                driver.cuLaunchKernel(
                    self.raw,
                    grid[0],
                    grid[1],
                    grid[2],
                    block[0],
                    block[1],
                    block[2],
                    shared,
                    stream.raw(),
                    arguments.as_mut_ptr(),
                    std::ptr::null_mut(),
                )
            };
        }
        let mut value = [0u64; 8];
        // The union holds three 32-bit sizes here.
        value[0] = u64::from(cluster[0]) | u64::from(cluster[1]) << 32;
        value[1] = u64::from(cluster[2]);
        let mut attribute =
            CUlaunchAttribute { id: CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, pad: [0; 4], value };
        let config = CUlaunchConfig {
            grid_dim_x: grid[0],
            grid_dim_y: grid[1],
            grid_dim_z: grid[2],
            block_dim_x: block[0],
            block_dim_y: block[1],
            block_dim_z: block[2],
            shared_mem_bytes: shared,
            stream: stream.raw(),
            attrs: &mut attribute,
            num_attrs: 1,
        };
        // SAFETY: as above; the configuration lives until the call returns.
        unsafe { driver.cuLaunchKernelEx(&config, self.raw, arguments.as_mut_ptr(), std::ptr::null_mut()) }
    }

    fn context(&self) -> &Context {
        &self.module.0.context
    }
}
