//! How many blocks of a kernel a multiprocessor holds, from what they need: a calculator that needs no device.

use std::fmt;

/// Resources of a multiprocessor of an architecture (CUDA C++ Programming Guide, technical specifications per compute capability).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Compute capability times ten.
    pub capability: u32,
    /// Threads at a time.
    pub threads: u32,
    /// Blocks at a time.
    pub blocks: u32,
    /// 32-bit registers.
    pub registers: u32,
    /// Bytes of shared memory.
    pub shared: u32,
    /// Bytes of shared memory that one block may have, where it asks for more than 48 KiB.
    pub shared_per_block: u32,
    /// Bytes of shared memory that the system takes for each block.
    reserved: u32,
    /// Allocation granularity of shared memory in bytes.
    unit: u32,
}

const KIB: u32 = 1 << 10;

impl Limits {
    /// The architectures that kernels are compiled for.
    pub const ALL: [Self; 8] = [
        Self::new(70, [2048, 32], [96, 96], 0, 256),
        Self::new(75, [1024, 16], [64, 64], 0, 256),
        Self::new(80, [2048, 32], [164, 163], KIB, 128),
        Self::new(86, [1536, 16], [100, 99], KIB, 128),
        Self::new(89, [1536, 24], [100, 99], KIB, 128),
        Self::new(90, [2048, 32], [228, 227], KIB, 128),
        Self::new(100, [2048, 32], [228, 227], KIB, 128),
        Self::new(120, [1536, 24], [100, 99], KIB, 128),
    ];

    const fn new(
        capability: u32,
        [threads, blocks]: [u32; 2],
        [shared, per_block]: [u32; 2],
        reserved: u32,
        unit: u32,
    ) -> Self {
        let (shared, shared_per_block) = (shared * KIB, per_block * KIB);
        Self { capability, threads, blocks, registers: 64 * KIB, shared, shared_per_block, reserved, unit }
    }

    /// The resources of a target such as `90a`.
    #[must_use]
    pub fn of(target: &str) -> Option<Self> {
        let number = target.trim_end_matches(|c: char| c.is_ascii_alphabetic()).parse::<u32>().ok()?;
        Self::ALL.into_iter().find(|limits| limits.capability == number)
    }

    /// How many blocks of such needs fit together.
    ///
    /// # Errors
    /// [`TooMuch`], with what to reduce, if not even one fits.
    pub fn occupancy(&self, needs: Needs) -> Result<Occupancy, TooMuch> {
        const WARP: u32 = 32;
        let Needs { threads, registers, shared } = needs;
        let target = self.capability;
        let too_much =
            |what, required, available, reduce| Err(TooMuch { target, what, required, available, reduce });
        if threads == 0 || threads > 1024 {
            return too_much("threads per block", threads, 1024, "the block");
        }
        if shared > self.shared_per_block {
            let reduce = "the tile or its number of stages";
            return too_much("bytes of shared memory per block", shared, self.shared_per_block, reduce);
        }
        if registers > 255 {
            return too_much("registers per thread", registers, 255, "the values a thread keeps");
        }
        // Registers are given to warps in units of 256, and warps to the four parts of a multiprocessor.
        let warps = threads.div_ceil(WARP);
        let per_warp = (registers.max(1) * WARP).next_multiple_of(256);
        let all_warps = self.registers / per_warp / 4 * 4;
        if warps > all_warps {
            let available = self.registers;
            return too_much(
                "registers per block",
                warps * per_warp,
                available,
                "the block or its registers",
            );
        }
        let per_block = (shared + self.reserved).next_multiple_of(self.unit);
        let candidates = [
            (self.blocks, Limit::Blocks),
            (self.threads / (warps * WARP), Limit::Threads),
            (all_warps / warps, Limit::Registers),
            (self.shared.checked_div(per_block).unwrap_or(u32::MAX), Limit::Shared),
        ];
        let blocks = candidates.iter().map(|(blocks, _)| *blocks).min().unwrap_or(0);
        let limits = candidates.map(|(most, limit)| (most == blocks).then_some(limit));
        Ok(Occupancy { blocks, warps: blocks * warps, most: self.threads / WARP, limits })
    }
}

/// The resources that a block needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Needs {
    /// Threads of a block.
    pub threads: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of shared memory of a block, static and dynamic.
    pub shared: u32,
}

/// What keeps another block from fitting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// The number of blocks.
    Blocks,
    /// The number of threads.
    Threads,
    /// Registers.
    Registers,
    /// Shared memory.
    Shared,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Blocks => "blocks",
            Self::Threads => "threads",
            Self::Registers => "registers",
            Self::Shared => "shared",
        })
    }
}

/// What fits on a multiprocessor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Occupancy {
    /// Blocks.
    pub blocks: u32,
    /// Their warps.
    pub warps: u32,
    /// The most warps there could be.
    pub most: u32,
    /// The limits that keep another block from fitting; each alone would.
    limits: [Option<Limit>; 4],
}

impl Occupancy {
    /// The limits that keep another block from fitting, at least one: to fit more, all of them must be lifted.
    pub fn limits(&self) -> impl Iterator<Item = Limit> {
        self.limits.into_iter().flatten()
    }
}

/// A block that no multiprocessor of an architecture can hold.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{required} {what} are required, sm_{target} has {available}: reduce {reduce}")]
pub struct TooMuch {
    /// Compute capability times ten.
    pub target: u32,
    /// The resource.
    pub what: &'static str,
    /// The amount that a block needs.
    pub required: u32,
    /// The amount available.
    pub available: u32,
    /// What to change.
    pub reduce: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::tuning::Tile;

    fn on(target: &str, threads: u32, registers: u32, shared: u32) -> (u32, Vec<Limit>) {
        let limits = Limits::of(target).unwrap();
        let found = limits.occupancy(Needs { threads, registers, shared }).unwrap();
        (found.blocks, found.limits().collect())
    }

    #[test]
    fn known_cases() {
        // Worked out by hand from the tables of the programming guide.
        use Limit::{Blocks, Registers, Shared, Threads};
        assert_eq!(on("90a", 256, 32, 0), (8, vec![Threads, Registers]), "each alone would");
        assert_eq!(on("90a", 256, 24, 0), (8, vec![Threads]));
        assert_eq!(on("90a", 256, 128, 0), (2, vec![Registers]));
        assert_eq!(on("90a", 128, 96, 0), (5, vec![Registers]));
        assert_eq!(on("80", 256, 64, 48 << 10), (3, vec![Shared]));
        assert_eq!(on("75", 1024, 64, 0), (1, vec![Threads, Registers]));
        assert_eq!(on("86", 32, 16, 0), (16, vec![Blocks]));
        assert_eq!(on("120", 256, 40, 0), (6, vec![Threads, Registers]));
    }

    #[test]
    fn tiles_of_matrix_products_fit_once() {
        for tile in Tile::ALL {
            let shared = u32::try_from(tile.shared_bytes()).unwrap();
            let needs = Needs { threads: Tile::THREADS, registers: 168, shared };
            assert_eq!(Limits::of("90a").unwrap().occupancy(needs).unwrap().blocks, 1);
            let error = Limits::of("80").unwrap().occupancy(needs).unwrap_err().to_string();
            assert!(
                error.contains("166912") && error.contains("stages") && error.contains("sm_80"),
                "{error}"
            );
        }
    }

    #[test]
    fn what_never_fits_is_named() {
        let limits = Limits::of("90").unwrap();
        let refuse = |threads, registers| {
            limits.occupancy(Needs { threads, registers, shared: 0 }).unwrap_err().to_string()
        };
        assert!(refuse(1025, 32).contains("threads per block"));
        assert!(refuse(0, 32).contains("threads per block"));
        assert!(refuse(256, 256).contains("registers per thread"));
        assert!(refuse(1024, 96).contains("registers per block"));
        assert_eq!(Limits::of("61"), None);
    }
}
