//! Kernels, and how they are launched.

use crate::{Arguments, Context, Error, Module, Result, Stream, sys::*};
use std::{
    ffi::{CString, c_int, c_uint},
    sync::Arc,
};

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
    /// Blocks of a cluster along x, y, z; all 1 for a launch without clusters.
    pub cluster: [u32; 3],
    /// Programmatic dependent launch: whether blocks may start before the preceding kernel in the stream has ended. Needs compute
    /// capability 9.0 or later, and a driver of CUDA 12.3 or later, which can capture such launches. The kernel itself must execute
    /// `griddepcontrol.wait` before it touches memory.
    pub overlapped: bool,
}

impl LaunchConfig {
    /// A launch along x without dynamic shared memory.
    pub const fn linear(blocks: u32, threads: u32) -> Self {
        Self { grid: [blocks, 1, 1], block: [threads, 1, 1], shared: 0, cluster: [1; 3], overlapped: false }
    }
}

/// The launch attributes of a configuration, and how many entries of the array are used.
fn attributes(config: &LaunchConfig) -> ([CUlaunchAttribute; 2], c_uint) {
    let mut attributes = [CUlaunchAttribute { id: 0, pad: [0; 4], value: [0; 8] }; 2];
    let mut count = 0;
    let mut push = |id, value: [u64; 2]| {
        attributes[count].id = id;
        attributes[count].value[..2].copy_from_slice(&value);
        count += 1;
    };
    if config.cluster != [1; 3] {
        let [x, y, z] = config.cluster.map(u64::from);
        // The union holds three 32-bit sizes here.
        push(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, [x | y << 32, z]);
    }
    if config.overlapped {
        push(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, [1, 0]);
    }
    (attributes, count as c_uint)
}

/// The driver's launch structure. It points to `attributes`, which must outlive it.
fn extended(config: &LaunchConfig, stream: CUstream, attributes: &mut [CUlaunchAttribute]) -> CUlaunchConfig {
    let LaunchConfig { grid, block, shared, .. } = *config;
    CUlaunchConfig {
        grid_dim_x: grid[0],
        grid_dim_y: grid[1],
        grid_dim_z: grid[2],
        block_dim_x: block[0],
        block_dim_y: block[1],
        block_dim_z: block[2],
        shared_mem_bytes: shared,
        stream,
        attrs: attributes.as_mut_ptr(),
        num_attrs: attributes.len() as c_uint,
    }
}

impl Module {
    /// A kernel by its name.
    ///
    /// # Errors
    /// [`Error::Kernel`] with the names of the module's kernels, if the driver can list them.
    pub fn function(&self, name: &str) -> Result<Function> {
        let driver = self.context().driver();
        let missing = || Error::Kernel {
            module: self.name().to_owned(),
            kernel: name.to_owned(),
            known: self.function_names().unwrap_or_default(),
        };
        let symbol = CString::new(name).map_err(|_| missing())?;
        self.context().bind()?;
        let mut raw = CUfunction::NULL;
        // SAFETY: all pointers are valid; the module is loaded.
        let result = unsafe { driver.cuModuleGetFunction(&mut raw, self.raw(), symbol.as_ptr()) };
        match result {
            Ok(()) => Ok(Function { module: self.clone(), raw, name: name.into() }),
            Err(error) if error.code() == Some(CUresult::ERROR_NOT_FOUND) => Err(missing()),
            Err(error) => Err(error),
        }
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

    /// The sizes of the kernel's parameters in bytes, in order (drivers from 12.4 on). Queries until the driver refuses an index past the
    /// last parameter; tools that watch for failing calls report that query.
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

    /// The sizes in bytes of the kernel's first `count` parameters (drivers from 12.4 on).
    ///
    /// # Errors
    /// From the driver; `ERROR_INVALID_VALUE` if the kernel has fewer parameters.
    pub fn first_parameter_sizes(&self, count: usize) -> Result<Vec<usize>> {
        self.context().bind()?;
        let size = |index| {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: both pointers are valid for the write; an index past the last parameter is an error of the call.
            unsafe { self.context().driver().cuFuncGetParamInfo(self.raw, index, &mut offset, &mut size)? };
            Ok(size)
        };
        (0..count).map(size).collect()
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

    /// The block size with the best occupancy, and the number of such blocks that fills the device: (threads, blocks). A block has `shared`
    /// bytes of dynamic shared memory and at most `limit` threads (0 for no limit).
    ///
    /// # Errors
    /// From the driver.
    pub fn best_block(&self, shared: usize, limit: u32) -> Result<(u32, u32)> {
        self.context().bind()?;
        let (mut blocks, mut threads) = (0, 0);
        // SAFETY: both pointers are valid for the write; the kernel's module is loaded; a null function means that shared
        // memory does not depend on the number of threads.
        unsafe {
            self.context().driver().cuOccupancyMaxPotentialBlockSize(
                &mut blocks,
                &mut threads,
                self.raw,
                std::ptr::null_mut(),
                shared,
                limit as c_int,
            )?;
        }
        Ok((threads.max(0) as u32, blocks.max(0) as u32))
    }

    /// Maximum number of co-resident clusters of a launch. A cluster stays within one GPC, so the multiprocessors may have room for more
    /// blocks than these clusters hold.
    ///
    /// # Errors
    /// From the driver.
    pub fn clusters(&self, config: &LaunchConfig) -> Result<u32> {
        self.context().bind()?;
        let (mut attributes, count) = attributes(config);
        let config = extended(config, CUstream(std::ptr::null_mut()), &mut attributes[..count as usize]);
        let mut clusters = 0;
        // SAFETY: the pointer is valid for the write, and configuration and attributes live until the call returns; the kernel's module is
        // loaded.
        unsafe { self.context().driver().cuOccupancyMaxActiveClusters(&mut clusters, self.raw, &config)? };
        Ok(clusters.max(0) as u32)
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
        const REST: [&str; 3] = [
            "remainder of the grid by the cluster along x",
            "remainder of the grid by the cluster along y",
            "remainder of the grid by the cluster along z",
        ];
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
        if config.cluster == [1; 3] {
            return Ok(());
        }
        // 16 blocks is the largest cluster of any device so far; kernels have to opt in to more than eight.
        let limit = if info.cluster_launch { 16 } else { 1 };
        let blocks: u64 = config.cluster.iter().map(|&size| u64::from(size)).product();
        if blocks == 0 || blocks > limit {
            return refuse("number of blocks per cluster", blocks, limit);
        }
        for (what, (grid, cluster)) in REST.into_iter().zip(config.grid.into_iter().zip(config.cluster)) {
            if grid % cluster != 0 {
                return refuse(what, (grid % cluster).into(), 0);
            }
        }
        Ok(())
    }

    /// Queues the kernel. The arguments are copied before the call returns.
    ///
    /// Checked here: the sizes of the grid, the blocks, the shared memory and the clusters, against the device's limits
    /// ([`validate`](Self::validate)). By the driver: that the stream belongs to the kernel's context. Nothing else is; in particular
    /// number and sizes of the arguments are compared with the kernel's by whoever calls [`parameter_sizes`](Self::parameter_sizes),
    /// once for a kernel, and not at each launch.
    ///
    /// # Safety
    /// 1. There is one argument for each parameter of the kernel, in order, of its type.
    /// 2. Device memory that the arguments name lives until the kernel is done. A [`buffer`](Arguments::buffer) cannot be returned ahead
    ///    of the launch. A block returned after it is returned in the order of the block's own stream: after the kernel, if it was
    ///    launched in that stream; in another one an [`Event`](crate::Event) has to order the two. Nothing is known of a
    ///    [`pointer`](Arguments::pointer), nor of addresses inside of structs. A launch that is captured runs whenever the graph is
    ///    launched, so its memory must live until then.
    /// 3. Sizes and offsets among the arguments are those of the memory: the kernel stays inside of it, with these arguments in this
    ///    grid. Memory that it writes is not used by anything that may run at the same time, and is not named by two arguments, unless
    ///    the kernel allows that.
    /// 4. Threads of a block, dynamic shared memory and cluster are those that the kernel was written and compiled for.
    /// 5. If the launch is [overlapped](LaunchConfig::overlapped), the kernel waits before it touches memory.
    ///
    /// # Errors
    /// [`Error::Launch`] if the sizes exceed the device's limits; from the driver.
    pub unsafe fn launch(
        &self,
        config: &LaunchConfig,
        stream: &Stream,
        arguments: &Arguments<'_>,
    ) -> Result<()> {
        self.validate(config)?;
        self.context().bind()?;
        let (driver, LaunchConfig { grid, block, shared, .. }) = (self.context().driver(), *config);
        let mut pointers = arguments.pointers();
        let (mut attributes, count) = attributes(config);
        if count == 0 {
            // SAFETY: the pointers lead to the arguments, which the driver copies before it returns; the caller vouches for what they
            // mean to the kernel.
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
                    pointers.as_mut_ptr(),
                    std::ptr::null_mut(),
                )
            };
        }
        let config = extended(config, stream.raw(), &mut attributes[..count as usize]);
        // SAFETY: as above; configuration and attributes live until the call returns.
        unsafe { driver.cuLaunchKernelEx(&config, self.raw, pointers.as_mut_ptr(), std::ptr::null_mut()) }
    }

    fn context(&self) -> &Context {
        self.module.context()
    }
}
