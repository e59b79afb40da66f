//! Kernels of several stages: what would be one small kernel after the other is one launch, where a barrier of the block between stages is
//! enough.
//!
//! Generated kernels are not launched at once but queued. When something else is launched, those that follow each other and of which a block can
//! compute [parts](super::parts) by itself become one kernel: it goes through a list of stages, each the text of the kernel that it replaces, at
//! the positions of the block's parts. Stages that differ by their arrays alone share their text, so that a hundred steps of an integrator
//! compile as fast as one. What is small enough is computed by one block whether or not it falls into parts.
//!
//! Memory that is let go meanwhile is not used again before the queue is empty: a block may be stages ahead of another.

use super::{
    parts::Runs,
    source::{MOST_ADDRESSES, MOST_STAGES, Source, staged},
    value::Own,
};
use crate::runtime::{
    common_divisor,
    cuda::{generated::Code, memory::Buffer},
};
use std::{cmp::Reverse, collections::HashMap, sync::Arc};

/// The most positions of a stage that one block computes, be they of a part or of everything.
const MOST_OF_PART: usize = 2048;

/// The most positions of a stage in all. Memory that is let go while a kernel waits is not used for what comes next, which shows in the peak
/// where arrays are large.
const MOST_POSITIONS: usize = 1 << 18;

/// The fewest parts for which a kernel of stages pays beside a launch for each; fewer leave most of a device idle.
const FEWEST_PARTS: usize = 16;

/// The most blocks of a kernel of stages: more wait for each other.
const MOST_BLOCKS: usize = 1056;

/// The most threads of a block.
const MOST_THREADS: usize = 256;

/// A kernel that waits to be launched, alone or as a stage.
pub(super) struct Stage {
    pub source: Source,
    /// The operator and its own kernel, of a value that no other is computed with.
    pub own: Option<(&'static str, Own)>,
    /// What it reads and writes: kept from others until it is launched, where nothing else does that.
    pub arrays: Vec<Arc<Buffer>>,
}

impl Stage {
    pub fn is_small(&self) -> bool {
        self.source.elements <= MOST_POSITIONS && self.source.addresses.len() <= MOST_ADDRESSES / 4
    }
}

/// The argument of a kernel of stages.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::NoUninit)]
pub(crate) struct List {
    addresses: [u64; MOST_ADDRESSES],
    /// The number of a stage's function, and where its addresses begin.
    stages: [u32; MOST_STAGES],
    count: i32,
    unused: i32,
}

/// What to launch for a stretch of the queue.
pub(super) enum Launch {
    One(Box<Stage>),
    Several { code: Code, list: Box<List>, blocks: usize, threads: u32, stages: Vec<Stage> },
}

/// Cuts a queue into kernels. `hints` are runs that arrays had in earlier kernels.
pub(super) fn launches(queue: Vec<Stage>, hints: &mut Runs) -> Vec<Launch> {
    let mut counts = HashMap::new();
    queue.iter().for_each(|stage| stage.source.tree.count_parts(&mut counts));
    // Edges may fall apart by receiver, too, and by system: what all fall into, the commonest first.
    let mut counts: Vec<(usize, usize)> =
        counts.into_iter().filter(|&(parts, _)| parts >= FEWEST_PARTS).collect();
    counts.sort_unstable_by_key(|&(parts, count)| (Reverse(count), parts));
    let common = |all: usize, &(parts, _): &(usize, usize)| match common_divisor(all, parts) {
        divisor if divisor >= FEWEST_PARTS => divisor,
        _ => all.max(1),
    };
    let parts = counts.iter().fold(0, common).max(1);
    let mut launches = Vec::new();
    let mut group = Group::new(parts);
    for stage in queue {
        if let Err(stage) = group.add(stage, hints) {
            launches.extend(group.finish());
            group = Group::new(parts);
            if let Err(stage) = group.add(*stage, hints) {
                launches.push(Launch::One(stage));
            }
        }
    }
    launches.extend(group.finish());
    launches
}

/// Stages of a kernel to be.
struct Group {
    /// Parts of every stage; 1 if one block computes all.
    parts: usize,
    stages: Vec<(Stage, usize)>,
    runs: Runs,
    addresses: usize,
}

impl Group {
    fn new(parts: usize) -> Self {
        Self { parts, stages: Vec::new(), runs: Runs::new(), addresses: 0 }
    }

    /// Adds a stage, or returns it if it cannot follow those that are there.
    fn add(&mut self, stage: Stage, hints: &mut Runs) -> Result<(), Box<Stage>> {
        let addresses = self.addresses + stage.source.addresses.len();
        let is_full = addresses > MOST_ADDRESSES || self.stages.len() >= MOST_STAGES;
        if is_full || !stage.is_small() {
            return Err(Box::new(stage));
        }
        let Some((parts, run)) = self.fitting(&stage, hints) else { return Err(Box::new(stage)) };
        self.parts = parts;
        for &(_, address) in &stage.source.tree.roots {
            self.runs.insert(address, run);
            hints.insert(address, run);
        }
        self.addresses = addresses;
        self.stages.push((stage, run));
        Ok(())
    }

    /// Parts and run with which a stage may follow.
    fn fitting(&self, stage: &Stage, hints: &Runs) -> Option<(usize, usize)> {
        let (tree, elements) = (&stage.source.tree, stage.source.elements);
        let fits = |&run: &usize| {
            run > 0
                && elements.is_multiple_of(self.parts * run)
                && elements / self.parts <= MOST_OF_PART
                && tree.falls_apart(self.parts, run, &self.runs)
        };
        if self.parts > 1 {
            let near = tree.candidates(self.parts, &self.runs).into_iter();
            let hinted = tree.candidates(self.parts, hints).into_iter();
            let even = elements.is_multiple_of(self.parts).then_some(elements / self.parts);
            if let Some(run) = near.chain(hinted).chain(even).find(fits) {
                return Some((self.parts, run));
            }
        }
        // One block, if it has computed everything so far.
        let is_alone = self.parts == 1 || self.stages.is_empty();
        (is_alone && elements <= MOST_OF_PART).then_some((1, elements))
    }

    fn finish(self) -> Vec<Launch> {
        let Self { parts, stages, .. } = self;
        if stages.len() < 2 {
            return stages.into_iter().map(|(stage, _)| Launch::One(Box::new(stage))).collect();
        }
        let positions = stages.iter().map(|(stage, _)| stage.source.elements / parts).max().unwrap_or(1);
        let divides = |together: &usize| parts.is_multiple_of(*together);
        let together = (parts.div_ceil(MOST_BLOCKS)..=parts).find(divides).unwrap_or(parts);
        let threads = (positions * together).next_multiple_of(32).clamp(32, MOST_THREADS) as u32;
        let mut list: Box<List> = Box::new(bytemuck::Zeroable::zeroed());
        let mut functions: Vec<String> = Vec::new();
        // Kernels of one text differ by their arrays alone; as stages they also need the same run.
        let mut known: HashMap<(&str, usize), u32> = HashMap::new();
        let (mut at, mut operations) = (0, Vec::new());
        for (number, (stage, run)) in stages.iter().enumerate() {
            let source = &stage.source;
            let function = *known.entry((source.code.text.as_str(), *run)).or_insert_with(|| {
                let name = format!("stage_{}", functions.len());
                functions.push(source.function(&name, parts, together, *run));
                functions.len() as u32 - 1
            });
            list.stages[number] = function << 16 | at as u32;
            list.addresses[at..at + source.addresses.len()].copy_from_slice(&source.addresses);
            at += source.addresses.len();
            for operation in &source.operations {
                if operations.len() < 4 && !operations.contains(operation) {
                    operations.push(*operation);
                }
            }
        }
        list.count = stages.len() as i32;
        let code = staged(&operations, &functions, threads);
        let stages = stages.into_iter().map(|(stage, _)| stage).collect();
        vec![Launch::Several { code, list, blocks: parts / together, threads, stages }]
    }
}
