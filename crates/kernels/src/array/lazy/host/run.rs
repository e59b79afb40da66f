//! Computing a group of values, block of rows by block of rows.

use super::{
    Host, Operand, Source,
    plan::{self, Group, Member, Next},
    scaled,
};
use crate::{
    Result,
    array::lazy::forget,
    cpu::{
        parallel::Flushed,
        simd::{FlushSubnormals, KeepSubnormals},
        split,
    },
    runtime::memory::{self, Block},
};
use rayon::prelude::*;
use std::{ops::Range, sync::Arc};

/// Bytes of the widest value in a block, about. Unit tests have small arrays, of several blocks and tasks.
const BLOCK: usize = if cfg!(test) { 1 << 9 } else { 1 << 14 };

/// Bytes of all values of a block that are alive at a time, about: what the second-level cache holds beside what is read.
const ALIVE: usize = 1 << 17;

/// Elements of all values of a group for which other threads are woken, and of a task at least.
const SHARED: [usize; 2] = if cfg!(test) { [1 << 12, 1 << 10] } else { [split::PARALLEL, split::CHUNK] };

/// Computes a value that waits, with all that it follows from.
pub(super) fn compute(target: &Arc<Host>) -> Result<()> {
    // What has to be there before, and what before that.
    let mut path = vec![Arc::clone(target)];
    while let Some(host) = path.last() {
        match plan::next(host) {
            Next::Before(other) => path.push(other),
            Next::Group(group) => run(&group)?,
            Next::Nothing => {
                path.pop();
            }
        }
    }
    Ok(())
}

/// Where the values of a block are: memory that is used again once its value has been read, or a window of an array.
enum Place<'a> {
    Scratch(Block),
    Window(&'a mut [u8]),
}

impl Place<'_> {
    /// The bytes that the rows of a block are in, of a value of which a row has `width` bytes. Windows have all rows of a task.
    fn range(&self, block: &Range<usize>, task: &Range<usize>, width: usize) -> Range<usize> {
        match self {
            Self::Scratch(_) => scaled(&(0..block.len()), width),
            Self::Window(_) => scaled(&(block.start - task.start..block.end - task.start), width),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Scratch(scratch) => scratch.bytes(),
            Self::Window(window) => window,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Scratch(scratch) => scratch.bytes_mut(),
            Self::Window(window) => window,
        }
    }
}

/// The places of the members: a number for each, of scratch with the most bytes in a row that it holds, and of windows.
struct Places {
    of: Vec<usize>,
    scratch: Vec<usize>,
}

impl Places {
    fn of(group: &Group) -> Self {
        let members = &group.members;
        let windows = members.iter().filter(|member| member.is_written).count();
        let (mut of, mut scratch, mut free, mut window) = (vec![0; members.len()], Vec::new(), Vec::new(), 0);
        for (number, member) in members.iter().enumerate() {
            of[number] = if member.is_written {
                window += 1;
                window - 1
            } else {
                let width = member.value.bytes() / group.rows;
                let place = free.pop().unwrap_or_else(|| {
                    scratch.push(0);
                    windows + scratch.len() - 1
                });
                scratch[place - windows] = width.max(scratch[place - windows]);
                place
            };
            let mut producers: Vec<usize> = member.producers.iter().copied().flatten().collect();
            producers.sort_unstable();
            producers.dedup();
            for producer in producers {
                if members[producer].last_reader == number && !members[producer].is_written {
                    free.push(of[producer]);
                }
            }
        }
        Self { of, scratch }
    }
}

fn run(group: &Group) -> Result<()> {
    let Group { members, rows } = group;
    let written: Vec<&Member> = members.iter().filter(|member| member.is_written).collect();
    let block = |member: &&Member| {
        let _account = memory::within(member.value.operation);
        Block::new(member.value.bytes(), member.value.operation)
    };
    let mut blocks = written.iter().map(block).collect::<Result<Vec<_>>>()?;
    let places = Places::of(group);
    let work: usize = members.iter().map(|member| member.value.elements).sum();
    let width = |member: &Member| member.value.bytes() / rows;
    let widest = members.iter().map(width).max().unwrap_or(1).max(1);
    let alive: usize =
        places.scratch.iter().sum::<usize>() + written.iter().map(|member| width(member)).sum::<usize>();
    let block_rows = (BLOCK / widest).min(ALIVE / alive.max(1)).clamp(1, *rows);
    // A task takes several blocks with the same scratch.
    let [shared, least] = SHARED;
    let pays = work >= shared;
    let tasks = if pays { (work / least).clamp(1, 4 * rayon::current_num_threads()) } else { 1 };
    let task_rows = rows.div_ceil(tasks).next_multiple_of(block_rows);
    let mut windows: Vec<_> = blocks
        .iter_mut()
        .zip(&written)
        .map(|(block, member)| block.bytes_mut().chunks_mut((task_rows * width(member)).max(1)))
        .collect();
    let mut all = Vec::new();
    for start in (0..*rows).step_by(task_rows) {
        let places = windows.iter_mut().filter_map(|windows| windows.next().map(Place::Window));
        all.push((start..(start + task_rows).min(*rows), places.collect::<Vec<_>>()));
    }
    let task = Task { group, places: &places, block_rows };
    let results = all.into_par_iter().flushed_map_if(pays, |(rows, windows)| task.run(rows, windows));
    results.into_iter().collect::<Result<()>>()?;
    for (member, block) in written.iter().zip(blocks) {
        member.host.store(block);
        forget(&member.host);
    }
    Ok(())
}

struct Task<'a> {
    group: &'a Group,
    places: &'a Places,
    block_rows: usize,
}

impl Task<'_> {
    /// Computes rows, whose windows in the arrays of written values these are.
    fn run(&self, rows: Range<usize>, windows: Vec<Place<'_>>) -> Result<()> {
        let scratch =
            |&width: &usize| Block::new(width * self.block_rows, "fused operators").map(Place::Scratch);
        let mut places: Vec<Option<Place<'_>>> = windows.into_iter().map(Some).collect();
        for width in &self.places.scratch {
            places.push(Some(scratch(width)?));
        }
        let _flush = FlushSubnormals::enter();
        for start in rows.clone().step_by(self.block_rows) {
            let block = start..(start + self.block_rows).min(rows.end);
            for number in 0..self.group.members.len() {
                self.compute(number, &rows, &block, &mut places);
            }
        }
        Ok(())
    }

    /// Computes the rows of one member that are in a block of those of the task.
    fn compute(
        &self,
        number: usize,
        task: &Range<usize>,
        block: &Range<usize>,
        places: &mut [Option<Place<'_>>],
    ) {
        let Group { members, rows } = self.group;
        let Member { value, producers, .. } = &members[number];
        let place = self.places.of[number];
        // Taken out while the operands' places are read: no value is its own operand.
        let Some(mut target) = places[place].take() else {
            unreachable!("a place is another value's once the last reader of its value is done")
        };
        let source = |operand, producer| self.source(operand, producer, task, block, places);
        let range = target.range(block, task, value.bytes() / rows);
        let first = block.start * (value.elements / rows);
        let _exact = value.is_exact.then(KeepSubnormals::enter);
        let out = &mut target.bytes_mut()[range];
        // Most operators have one operand or two.
        match (&value.operands[..], &producers[..]) {
            ([a], [i]) => value.function.compute(&[source(a, *i)], first, out),
            ([a, b], [i, j]) => value.function.compute(&[source(a, *i), source(b, *j)], first, out),
            (operands, producers) => {
                let sources: Vec<Source<'_>> =
                    operands.iter().zip(producers).map(|(a, i)| source(a, *i)).collect();
                value.function.compute(&sources, first, out);
            }
        }
        places[place] = Some(target);
    }

    /// What a member reads: the storage of an operand, or what its producer has computed of this block.
    fn source<'b>(
        &'b self,
        operand: &'b Operand,
        producer: Option<usize>,
        task: &Range<usize>,
        block: &Range<usize>,
        places: &'b [Option<Place<'_>>],
    ) -> Source<'b> {
        let Group { members, rows } = self.group;
        let Some(producer) = producer else {
            let memory = operand.host.computed();
            let memory = memory.unwrap_or_else(|| unreachable!("what no member computes is in memory"));
            return Source { bytes: memory.bytes(), start: 0 };
        };
        let place = places[self.places.of[producer]].as_ref();
        let place = place.unwrap_or_else(|| unreachable!("a value is in its place until it is read"));
        let value = &members[producer].value;
        let bytes = &place.bytes()[place.range(block, task, value.bytes() / rows)];
        Source { bytes, start: block.start * (value.elements / rows) }
    }
}
