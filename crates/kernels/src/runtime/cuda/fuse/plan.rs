//! Which of the values that wait one kernel computes.

use super::{
    pending::{Id, Pending},
    source::{Source, Writer},
    value::Value,
};
use crate::runtime::cuda::memory::Buffer;
use std::{collections::BTreeMap, sync::Arc};

/// A kernel, and the values that it writes.
pub(super) struct Work {
    pub source: Source,
    pub values: BTreeMap<Id, Value>,
    /// Whether it computes one value from arrays alone, as the operator's own kernel does.
    pub is_alone: bool,
    /// The arrays that it reads and writes, if they are to be kept.
    pub arrays: Vec<Arc<Buffer>>,
}

/// Takes these values, and those that one kernel computes on the way and something else may read as well: kernels that compute them, in
/// order. `keeps` says whether those keep the arrays.
pub(super) fn compute(pending: &mut Pending, targets: &[Id], keeps: bool) -> Vec<Work> {
    let mut by_size: BTreeMap<usize, Vec<Id>> = BTreeMap::new();
    for &id in targets.iter().filter(|id| pending.contains(**id)) {
        by_size.entry(pending.value(id).elements).or_default().push(id);
    }
    let mut work = Vec::new();
    for targets in by_size.into_values() {
        let mut rest = &targets[..];
        while let Some((&first, _)) = rest.split_first() {
            // Taken on the way of another.
            if !pending.contains(first) {
                rest = &rest[1..];
                continue;
            }
            let held = pending.held();
            let mut writer = Writer::new(pending, first);
            let mut roots = Vec::new();
            while let Some((&id, others)) = rest.split_first() {
                if pending.contains(id) {
                    if !roots.is_empty() && writer.is_full() {
                        break;
                    }
                    writer.root(id);
                    roots.push(id);
                }
                rest = others;
            }
            let on_the_way: Vec<Id> = writer
                .computed()
                .into_iter()
                .filter(|id| !roots.contains(id) && pending.is_wanted(*id, &held))
                .collect();
            for id in on_the_way {
                writer.root(id);
                roots.push(id);
            }
            // The unit tests of this crate have no kernels but generated ones.
            let is_alone = roots.len() == 1 && writer.count() == 1 && !cfg!(test);
            let source = writer.finish();
            let arrays = if keeps { pending.arrays(&source.addresses) } else { Vec::new() };
            let values = roots.into_iter().map(|id| (id, pending.take(id))).collect();
            work.push(Work { source, values, is_alone, arrays });
        }
    }
    work
}
