//! The values of a capture that no kernel has computed yet.

use super::value::{Operand, Value};
use crate::runtime::cuda::memory::Buffer;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

/// The most work that one element of a value may take, with all values that are computed on the way, in units of a multiplication. What
/// takes more has its operands in memory. Chains that are longer than a launch is short do not pay: with ten times as much, the step of a
/// network of gravity takes 5 ms instead of 1.2, and compiling it 30 s instead of 1.
const MOST_WORK: f64 = 48.0;

/// The most work in a loop over the elements of an operand: what takes more is written first, by as many threads as it has elements.
const MOST_LOOPED: f64 = 12.0;

/// The most work that computing operands again for several elements may take, over all elements.
const MOST_REPEATED: f64 = 4e6;

/// The most values that wait at a time.
const MOST_WAITING: usize = 512;

/// The number of a value, in the order in which operators described them.
pub(super) type Id = usize;

/// Values that wait, by number.
#[derive(Default)]
pub(super) struct Pending {
    values: BTreeMap<Id, Value>,
    next: Id,
    /// The value that a buffer will hold, by where it begins on the device.
    of_address: BTreeMap<u64, Id>,
}

impl Pending {
    pub fn contains(&self, id: Id) -> bool {
        self.values.contains_key(&id)
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub fn value(&self, id: Id) -> &Value {
        &self.values[&id]
    }

    /// The value that an operand shows, if no kernel has computed it.
    pub fn producer(&self, operand: &Operand) -> Option<Id> {
        self.of_address.get(&operand.buffer.pointer()).copied()
    }

    /// The values in whose memory one of these words points.
    pub fn touched(&self, words: impl Iterator<Item = u64>) -> Vec<Id> {
        let mut found = BTreeSet::new();
        for word in words {
            if let Some((&start, &id)) = self.of_address.range(..=word).next_back()
                && word - start < self.values[&id].out.bytes() as u64
            {
                found.insert(id);
            }
        }
        found.into_iter().collect()
    }

    /// Values that must be computed before `value` waits: operands of which it would repeat too much, all of them if it would take too
    /// much in one kernel, and the oldest ones if too many wait.
    pub fn before(&self, value: &Value) -> Vec<Id> {
        let producers: BTreeSet<Id> =
            value.operands.iter().filter_map(|operand| self.producer(operand)).collect();
        let mut work = Budget { left: MOST_WORK, seen: HashSet::new() };
        self.spend(value, 1.0, 0, &mut work);
        if work.left < 0.0 {
            return producers.into_iter().collect();
        }
        let repeated = value.operands.iter().filter_map(|operand| {
            let id = self.producer(operand)?;
            let (source, times) = (&self.values[&id], value.elements as f64 * value.function.elements_read());
            let is_repeated = times > 1.5 * source.elements as f64;
            let looped = value.function.looped();
            let limits =
                [(is_repeated, MOST_REPEATED / times.max(1.0)), (looped > 1.0, MOST_LOOPED / looped)];
            let most =
                limits.into_iter().filter(|(applies, _)| *applies).map(|(_, most)| most).reduce(f64::min)?;
            let mut budget = Budget { left: most, seen: HashSet::new() };
            self.spend(source, 1.0, 0, &mut budget);
            (budget.left < 0.0).then_some(id)
        });
        let mut first: BTreeSet<Id> = repeated.collect();
        if self.values.len() >= MOST_WAITING {
            first.extend(self.values.keys().take(MOST_WAITING / 2));
        }
        first.into_iter().collect()
    }

    /// Takes the work for one element, `times` over, from a budget. Values that are reached by the same way count once.
    fn spend(&self, value: &Value, times: f64, way: u64, budget: &mut Budget) {
        budget.left -= times * value.function.work();
        let times = times * value.function.elements_read();
        for (number, operand) in value.operands.iter().enumerate() {
            let Some(id) = self.producer(operand) else { continue };
            // Another way for each view that moves elements.
            let moved =
                !(operand.is_contiguous() && operand.offset == 0 && value.function.elements_read() == 1.0);
            let way = if moved {
                way.wrapping_mul(31).wrapping_add((value.elements + number) as u64 + 1)
            } else {
                way
            };
            if budget.left < 0.0 || !budget.seen.insert((id, way)) {
                continue;
            }
            self.spend(&self.values[&id], times, way, budget);
        }
    }

    pub fn add(&mut self, value: Value) {
        let id = self.next;
        self.next += 1;
        self.of_address.insert(value.out.pointer(), id);
        self.values.insert(id, value);
    }

    /// All values that something besides those that wait may still read.
    pub fn wanted(&self) -> Vec<Id> {
        let held = self.held();
        self.values.keys().copied().filter(|id| self.is_wanted(*id, &held)).collect()
    }

    /// How many operands of waiting values show each buffer.
    pub fn held(&self) -> HashMap<u64, usize> {
        let mut held = HashMap::new();
        for operand in self.values.values().flat_map(|value| &value.operands) {
            *held.entry(operand.buffer.pointer()).or_insert(0) += 1;
        }
        held
    }

    /// Whether something besides the values that wait may still read a value, of which so many operands are [`held`](Self::held).
    pub fn is_wanted(&self, id: Id, held: &HashMap<u64, usize>) -> bool {
        let out = &self.values[&id].out;
        let inside = 1 + held.get(&out.pointer()).copied().unwrap_or(0);
        Arc::strong_count(out) > inside
    }

    /// The arrays at these addresses, among those that waiting values read and will be in.
    pub fn arrays(&self, addresses: &[u64]) -> Vec<Arc<Buffer>> {
        let read = self.values.values().flat_map(|value| &value.operands).map(|operand| &operand.buffer);
        let all = read.chain(self.values.values().map(|value| &value.out));
        all.filter(|buffer| addresses.contains(&buffer.pointer())).cloned().collect()
    }

    /// Lets go of values that nothing reads any more. Their memory is free for others.
    pub fn sweep(&mut self) {
        let mut held = self.held();
        let newest_first: Vec<Id> = self.values.keys().rev().copied().collect();
        for id in newest_first {
            let read = held.contains_key(&self.values[&id].out.pointer());
            if !read && !self.is_wanted(id, &held) {
                let value = self.take(id);
                for operand in &value.operands {
                    let address = operand.buffer.pointer();
                    if let Some(count) = held.get_mut(&address) {
                        *count -= 1;
                        if *count == 0 {
                            held.remove(&address);
                        }
                    }
                }
            }
        }
    }

    /// Takes a value out.
    pub fn take(&mut self, id: Id) -> Value {
        let Some(value) = self.values.remove(&id) else { unreachable!("a value that waits is taken once") };
        self.of_address.remove(&value.out.pointer());
        value
    }

    /// Values that were taken, after all that they are computed from and that waits, in the order in which operators described them.
    pub fn one_by_one(&mut self, mut values: BTreeMap<Id, Value>) -> Vec<Value> {
        loop {
            let operands = values.values().flat_map(|value| &value.operands);
            let missing: Vec<Id> = operands.filter_map(|operand| self.producer(operand)).collect();
            if missing.is_empty() {
                return values.into_values().collect();
            }
            for id in missing {
                // Twice an operand, once a value.
                if self.values.contains_key(&id) {
                    values.insert(id, self.take(id));
                }
            }
        }
    }
}

/// Work that may be spent, and the values for which it was.
struct Budget {
    left: f64,
    seen: HashSet<(Id, u64)>,
}
