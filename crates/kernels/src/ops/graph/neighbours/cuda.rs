//! The search on CUDA.

use super::{OPERATION, Search};
use crate::{
    Array, CudaDevice, Index, Result,
    csrc::neighbours::{ALONE, BINS, FEW, MEASURES, MEASURING, STATE, THREADS},
    runtime::cuda::{Args, Buffer, Grid, Kernel},
};

/// Memory of a search, and what its kernels are given.
pub(super) struct DeviceSearch {
    device: CudaDevice,
    bound: BoxOfKernels,
    atoms: usize,
    room: usize,
    far: f64,
    state: Buffer,
    measures: Buffer,
    bins: Buffer,
    ends: Buffer,
    members: Buffer,
    inside: Buffer,
    taken: Buffer,
    rows: Buffer,
    found_senders: Buffer,
    found_images: Buffer,
    images: Buffer,
}

/// `Box` of csrc/graph/neighbours.cuh.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct BoxOfKernels {
    vectors: [[f64; 3]; 3],
    inverse: [[f64; 3]; 3],
    heights: [f64; 3],
    width: f64,
    limit: f64,
    loose: f64,
    periodic: [i32; 3],
    unused: i32,
}

/// `Scratch` there: addresses.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct Scratch {
    state: u64,
    report: u64,
    measures: u64,
    bins: u64,
    ends: u64,
    members: u64,
    inside: u64,
    taken: u64,
    rows: u64,
    found_senders: u64,
    found_images: u64,
}

/// `List` there: addresses, and what fills up.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct List {
    receivers: [u64; 3],
    senders: [u64; 3],
    images: u64,
    shifts: u64,
    searched: u64,
    far: f64,
    room: u64,
}

impl DeviceSearch {
    pub fn new(device: &CudaDevice, search: &Search, atoms: usize, room: usize, far: f64) -> Result<Self> {
        let buffer = |words: usize, size: usize| Buffer::new(device, words * size, OPERATION);
        let Search { frame, width, limit, loose } = search;
        let bound = BoxOfKernels {
            vectors: frame.vectors,
            inverse: frame.inverse,
            heights: frame.heights,
            width: *width,
            limit: *limit,
            loose: *loose,
            periodic: frame.periodic.map(i32::from),
            unused: 0,
        };
        let this = Self {
            device: device.clone(),
            bound,
            atoms,
            room,
            far,
            state: buffer(STATE, 1)?,
            measures: buffer(MEASURES * MEASURING, 8)?,
            bins: buffer(atoms, 4)?,
            ends: buffer(BINS * atoms, 4)?,
            members: buffer(atoms, 4)?,
            inside: buffer(3 * atoms, 8)?,
            taken: buffer(3 * atoms, 4)?,
            rows: buffer(atoms, 4)?,
            found_senders: buffer(room, 4)?,
            found_images: buffer(room, 8)?,
            images: buffer(room, 8)?,
        };
        // Searches are counted from here on.
        this.state.write(0, &[0; STATE], OPERATION)?;
        let none = vec![pack([0; 3]); room];
        this.images.write(0, bytemuck::cast_slice(&none), OPERATION)?;
        Ok(this)
    }

    /// Searches, always or where an atom has moved by the root of `due`. `positions` are contiguous.
    pub fn launch(
        &self,
        positions: &Array,
        ends: [&Index; 2],
        [shifts, searched]: [&Array; 2],
        numbers: &Array,
        due: Option<f64>,
    ) -> Result<()> {
        let lists = |index: &Index| {
            let Some(lists) = index.resident() else { return [0; 3] };
            let [starts, order] = lists.groups();
            [lists.values(), starts, order]
        };
        let own = self.scratch(numbers);
        let list = List {
            receivers: lists(ends[0]),
            senders: lists(ends[1]),
            images: self.images.pointer(),
            shifts: shifts.cuda_address(),
            searched: searched.cuda_address(),
            far: self.far,
            room: self.room as u64,
        };
        // What waits may read the list as it was.
        self.device.settle()?;
        let (atoms, dtype) = (self.atoms, positions.dtype());
        let limit =
            |args: Args<'static>| args.size(atoms).double(due.unwrap_or(0.0)).int(i32::from(due.is_none()));
        let launch = |kernel: Kernel, grid: Grid, args: Args<'_>| {
            // SAFETY: 1: positions and `searched` are contiguous, `[3, atoms, 1]` of the list's dtype on its device; the other sizes are
            // those with which the list and the buffers of `new` were made. 2: the list's arrays and indices are its own to change in
            // place, and what reads them knows; `settle` computed what waited for them. Positions are none of these, for the list gives out
            // `searched` to be read alone. 3: the kernels `few`, `begin`, `bins` and `rows` run as one block of `ALONE` threads, the others
            // stride. 4: all addresses in `own` and `list` are of buffers that this and the list hold.
            unsafe { self.device.launch(OPERATION, kernel, grid, args) }
        };
        let alone = || Grid::blocks(1, ALONE as u32);
        let each = Grid::linear(atoms);
        let plain = |operation| Kernel { operation, signature: None, dtype: None };
        let of = |operation| Kernel::new(operation, dtype);
        let x = || Args::new().pointer(positions.cuda_address());
        if atoms <= FEW {
            let args = x().pointer(searched.cuda_address()).value(&self.bound).value(&own);
            launch(of("neighbours_few"), alone(), limit(args))?;
        } else {
            let blocks = atoms.div_ceil(THREADS).min(MEASURING);
            let args =
                x().pointer(searched.cuda_address()).value(&self.bound).pointer(own.measures).size(atoms);
            launch(of("neighbours_measure"), Grid::blocks(blocks, THREADS as u32), args)?;
            let args = Args::new().pointer(own.measures).size(blocks).value(&self.bound).value(&own);
            launch(plain("neighbours_begin"), alone(), limit(args))?;
            launch(of("neighbours_members"), each, x().value(&self.bound).value(&own).size(atoms))?;
            launch(plain("neighbours_bins"), alone(), Args::new().value(&own))?;
            launch(of("neighbours_put"), each, x().value(&self.bound).value(&own).size(atoms))?;
        }
        let warps = Grid::linear(atoms.saturating_mul(32));
        launch(of("neighbours_count"), warps, x().value(&self.bound).value(&own).size(atoms))?;
        launch(plain("neighbours_rows"), alone(), Args::new().value(&own).size(atoms).size(self.room))?;
        launch(of("neighbours_fill"), warps, x().value(&self.bound).value(&own).value(&list).size(atoms))?;
        let pairs = Grid::linear(self.room.max(3 * atoms));
        launch(of("neighbours_group"), pairs, x().value(&own).value(&list).size(atoms))
    }

    fn scratch(&self, numbers: &Array) -> Scratch {
        Scratch {
            state: self.state.pointer(),
            report: numbers.cuda_address(),
            measures: self.measures.pointer(),
            bins: self.bins.pointer(),
            ends: self.ends.pointer(),
            members: self.members.pointer(),
            inside: self.inside.pointer(),
            taken: self.taken.pointer(),
            rows: self.rows.pointer(),
            found_senders: self.found_senders.pointer(),
            found_images: self.found_images.pointer(),
        }
    }

    /// Images, read from the device.
    pub fn images(&self) -> Result<Vec<[i32; 3]>> {
        let mut packed = vec![0u64; self.room];
        self.images.read(0, bytemuck::cast_slice_mut(&mut packed), OPERATION)?;
        Ok(packed.into_iter().map(unpack).collect())
    }
}

/// Images as one number: 21 bits each, above 0.
fn pack(images: [i32; 3]) -> u64 {
    images.into_iter().fold(0, |packed, image| packed << 21 | (i64::from(image) + (1 << 20)) as u64)
}

fn unpack(packed: u64) -> [i32; 3] {
    [42, 21, 0].map(|bits| ((packed >> bits) & ((1 << 21) - 1)) as i32 - (1 << 20))
}

#[cfg(test)]
mod tests {
    use super::{pack, unpack};

    #[test]
    fn images_are_ordered_as_their_numbers_are() {
        let ordered =
            [[-524_290, 3, 1], [-1, 2, 2], [0, -3, 524_290], [0, 0, -1], [0, 0, 0], [0, 0, 1], [1, -7, 0]];
        assert!(ordered.map(pack).is_sorted());
        assert_eq!(ordered.map(pack).map(unpack), ordered);
    }
}
