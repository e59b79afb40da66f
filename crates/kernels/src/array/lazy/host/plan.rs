//! Which of the values that wait are computed together.

use super::{Host, Local, Value};
use crate::runtime::common_divisor;
use std::{collections::HashMap, sync::Arc};

/// The most bytes of one value in a row: rows are the smallest blocks, and several values of a block are in the cache.
pub(in crate::array::lazy) const MOST_IN_A_ROW: usize = 1 << 15;

/// The most values that are computed together.
const MOST_MEMBERS: usize = 256;

/// A value that is computed with others.
pub(in crate::array::lazy) struct Member {
    pub host: Arc<Host>,
    pub value: Arc<Value>,
    /// For each operand, the member that computes it; `None` for one that is in memory.
    pub producers: Vec<Option<usize>>,
    /// Whether something besides the members may read it.
    pub is_written: bool,
    /// The member that reads it last.
    pub last_reader: usize,
}

/// Values that are computed together, each behind those that it follows from, in `rows` equal parts that do not depend on each other.
pub(in crate::array::lazy) struct Group {
    pub members: Vec<Member>,
    pub rows: usize,
}

/// What is to be computed next for a value.
pub(in crate::array::lazy) enum Next {
    /// The value, with others.
    Group(Group),
    /// Another one, which it reads in a way that does not go by rows.
    Before(Arc<Host>),
    /// Nothing: it does not wait.
    Nothing,
}

/// What is to be computed next for the value of `target`.
pub(in crate::array::lazy) fn next(target: &Arc<Host>) -> Next {
    let Some(value) = target.value() else { return Next::Nothing };
    let (rows, widest) = (value.rows, value.bytes());
    let mut planner = Planner { members: Vec::new(), places: HashMap::new(), rows, widest };
    let mut path = vec![Visit::new(Arc::clone(target), value)];
    while let Some(visit) = path.last_mut() {
        let Some(operand) = visit.value.operands.get(visit.producers.len()) else {
            if let Some(done) = path.pop() {
                let place = planner.add(done);
                if let Some(reader) = path.last_mut() {
                    reader.producers.push(Some(place));
                }
            }
            continue;
        };
        let Some(value) = operand.host.waits().then(|| operand.host.value()).flatten() else {
            visit.producers.push(None);
            continue;
        };
        let host = Arc::clone(&operand.host);
        if !planner.admits(&value, operand.local) {
            return Next::Before(host);
        }
        match planner.places.get(&Arc::as_ptr(&host)) {
            Some(&place) => visit.producers.push(Some(place)),
            None if planner.members.len() + path.len() >= MOST_MEMBERS => return Next::Before(host),
            None => path.push(Visit::new(host, value)),
        }
    }
    let Planner { mut members, rows, places, .. } = planner;
    let mut reads = vec![0; members.len()];
    for place in 0..members.len() {
        for operand in &members[place].value.operands {
            if let Some(&read) = places.get(&Arc::as_ptr(&operand.host)) {
                reads[read] += 1;
            }
        }
        for producer in members[place].producers.clone().into_iter().flatten() {
            members[producer].last_reader = place;
        }
    }
    for (member, reads) in members.iter_mut().zip(reads) {
        // The member itself is a holder as well.
        member.is_written = Arc::strong_count(&member.host) > 1 + reads;
    }
    if let Some(target) = members.last_mut() {
        target.is_written = true;
    }
    Next::Group(Group { members, rows })
}

struct Planner {
    members: Vec<Member>,
    places: HashMap<*const Host, usize>,
    rows: usize,
    /// The most bytes of a value.
    widest: usize,
}

/// A value whose operands are being visited.
struct Visit {
    host: Arc<Host>,
    value: Arc<Value>,
    producers: Vec<Option<usize>>,
}

impl Visit {
    fn new(host: Arc<Host>, value: Arc<Value>) -> Self {
        let producers = Vec::with_capacity(value.operands.len());
        Self { host, value, producers }
    }
}

impl Planner {
    /// Whether a value can be computed with those that read it so. Then the rows are such that it can.
    fn admits(&mut self, value: &Value, local: Local) -> bool {
        let rows = match local {
            Local::No => return false,
            Local::Same => self.rows,
            Local::Rows(rows) => common_divisor(self.rows, rows),
        };
        let rows = common_divisor(rows, value.rows);
        let widest = self.widest.max(value.bytes());
        if widest / rows.max(1) > MOST_IN_A_ROW {
            return false;
        }
        (self.rows, self.widest) = (rows, widest);
        true
    }

    /// Adds a value behind those that it follows from.
    fn add(&mut self, visit: Visit) -> usize {
        let Visit { host, value, producers } = visit;
        let place = self.members.len();
        self.places.insert(Arc::as_ptr(&host), place);
        self.members.push(Member { host, value, producers, is_written: false, last_reader: place });
        place
    }
}
