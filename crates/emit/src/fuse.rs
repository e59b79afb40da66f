//! Fewer loops: values that are read where they are needed, and what follows an accumulation at once.

use crate::{
    index::{Index, inverted},
    nest::{Expr, Nest, normalize},
};
use gradewise_autograd::{formula::Update, program::Program};
use std::collections::HashSet;

/// The most work of a value that is computed again for each reader instead of being stored.
const CHEAP: usize = 2;

/// The nests that are left when values move into the loops that read them.
pub(crate) fn fused(program: &Program, nests: Vec<Nest>) -> Vec<Nest> {
    let outputs: HashSet<usize> = program.outputs.iter().map(|view| view.buffer).collect();
    let mut nests = without_unread(nests, &outputs);
    inline(program, &mut nests);
    let mut nests = without_unread(nests, &outputs);
    append(program, &mut nests, &outputs);
    without_unread(nests, &outputs)
}

/// How often each buffer is read, by places in nests.
fn reads(nests: &[Nest], buffers: usize) -> Vec<usize> {
    let mut reads = vec![0; buffers];
    nests.iter().for_each(|nest| nest.loads(&mut |buffer, _| reads[buffer] += 1));
    reads
}

/// The only nest that writes each buffer.
fn writers(nests: &[Nest], buffers: usize) -> Vec<Option<usize>> {
    let mut counts = vec![0; buffers];
    let mut writers = vec![None; buffers];
    for (index, nest) in nests.iter().enumerate() {
        counts[nest.buffer] += 1;
        writers[nest.buffer] = Some(index);
    }
    writers.iter().zip(counts).map(|(&writer, count)| writer.filter(|_| count == 1)).collect()
}

/// Drops nests whose results nothing reads.
fn without_unread(nests: Vec<Nest>, outputs: &HashSet<usize>) -> Vec<Nest> {
    let mut read = outputs.clone();
    let mut kept: Vec<Nest> = Vec::new();
    for nest in nests.into_iter().rev() {
        if read.contains(&nest.buffer) {
            nest.loads(&mut |buffer, _| {
                read.insert(buffer);
            });
            kept.push(nest);
        }
    }
    kept.reverse();
    kept
}

/// The nests that set a part of each buffer each.
fn parts(nests: &[Nest], buffers: usize) -> Vec<Vec<usize>> {
    let mut parts = vec![Vec::new(); buffers];
    let mut whole = vec![true; buffers];
    for (index, nest) in nests.iter().enumerate() {
        whole[nest.buffer] &= nest.update == Update::Set && nest.is_part;
        parts[nest.buffer].push(index);
    }
    parts.into_iter().zip(whole).map(|(parts, whole)| if whole { parts } else { Vec::new() }).collect()
}

/// Puts the values of elementwise nests where they are read.
fn inline(program: &Program, nests: &mut [Nest]) {
    let count = program.buffers.len();
    let (writers, mut reads) = (parts(nests, count), reads(nests, count));
    for index in 0..nests.len() {
        let mut nest = nests[index].clone();
        let evaluations = nest.evaluations();
        let sizes = nest.sizes.clone();
        let mut operations = Vec::new();
        // A value that was moved here may have loads that were left in it for its own loops, so one pass is enough.
        let moved = &mut |buffer: usize, position: Index| {
            let stays = Expr::Load(buffer, position.clone());
            // What is read lies in one part, or stays.
            let found = writers[buffer].iter().filter(|&&writer| writer < index).find_map(|&writer| {
                let by = inverted(&nests[writer].to, &nests[writer].sizes, &position, &sizes)?;
                Some((&nests[writer], by))
            });
            let Some((from, by)) = found else { return Some(stays) };
            let again = evaluations.saturating_sub(from.evaluations());
            let fits = match from.value.work() {
                0 => true,
                work => again == 0 && reads[buffer] == 1 || work <= CHEAP && again <= from.evaluations(),
            };
            let Some(value) = from.value.substituted(&by, &sizes).filter(|_| fits) else {
                return Some(stays);
            };
            reads[buffer] -= 1;
            value.loads(&mut |buffer, _| reads[buffer] += 1);
            operations.extend(&from.operations);
            Some(value)
        };
        if let Some(value) = nest.value.clone().map_loads(moved) {
            nest.value = value;
        }
        operations.append(&mut nest.operations);
        operations.dedup();
        nest.operations = operations;
        normalize(&mut nest, &program.buffers);
        nests[index] = nest;
    }
}

/// Lets nests that accumulate store what the only nest that reads their results makes of them.
fn append(program: &Program, nests: &mut Vec<Nest>, outputs: &HashSet<usize>) {
    let count = program.buffers.len();
    let mut index = 0;
    while index < nests.len() {
        let writers = writers(nests, count);
        if let Some(joined) = appended(program, nests, &writers, index, outputs) {
            let (writer, nest) = joined;
            // In the place of the reader, so that what it reads besides is complete.
            nests[index] = nest;
            nests.remove(writer);
            continue;
        }
        index += 1;
    }
}

/// Nest `index` as the tail of the nest that it reads, and which that is.
fn appended(
    program: &Program,
    nests: &[Nest],
    writers: &[Option<usize>],
    index: usize,
    outputs: &HashSet<usize>,
) -> Option<(usize, Nest)> {
    let reader = &nests[index];
    if reader.update != Update::Set || reader.tail.is_some() {
        return None;
    }
    let mut loads: Vec<(usize, Index)> = Vec::new();
    reader.value.loads(&mut |buffer, at| loads.push((buffer, at.clone())));
    for (buffer, at) in &loads {
        let Some(writer) = writers[*buffer].filter(|&writer| writer < index) else { continue };
        let from = &nests[writer];
        let alone = nests.iter().enumerate().all(|(other, nest)| {
            let mut reads = false;
            nest.loads(&mut |read, _| reads |= read == *buffer);
            other == index || !reads
        });
        let dtype = |buffer: usize| program.buffers[buffer].dtype;
        let accumulates = from.update != Update::Set && from.start.is_some() && from.tail.is_none();
        let same_place = loads.iter().all(|(other, place)| other != buffer || place == at);
        if !accumulates
            || !alone
            || !same_place
            || outputs.contains(buffer)
            || dtype(*buffer) != dtype(reader.buffer)
        {
            continue;
        }
        let written: usize =
            from.sizes.iter().enumerate().filter(|(c, _)| from.to.has(*c)).map(|(_, n)| n).product();
        if written != reader.evaluations() {
            continue;
        }
        // The counters of the reader, from those of the nest that accumulates.
        let Some(by) = inverted(at, &reader.sizes, &from.to, &from.sizes) else { continue };
        let (Some(value), Some(to)) =
            (reader.value.substituted(&by, &from.sizes), reader.to.substituted(&by, &from.sizes))
        else {
            continue;
        };
        let tail = value.map_loads(&mut |read, index| {
            Some(if read == *buffer { Expr::Accumulated } else { Expr::Load(read, index) })
        })?;
        let operations = from.operations.iter().chain(&reader.operations).copied().collect();
        return Some((
            writer,
            Nest { operations, buffer: reader.buffer, to, tail: Some(tail), ..from.clone() },
        ));
    }
    None
}
