//! Where the numbers between the loops are kept.

use crate::nest::Nest;
use gradewise_autograd::program::{Contents, Program};
use gradewise_core::DType;

/// Buffers begin at multiples of so many elements.
const ALIGNMENT: usize = 16;

/// The places of buffers in one array for each type, which buffers that are not needed at the same time share.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// By buffer, for those that are in an array.
    pub places: Vec<Option<usize>>,
    /// Elements of the arrays of `float` and of `double`.
    pub elements: [usize; 2],
}

/// The array of a type: 0 for `float`, 1 for `double`.
pub(crate) fn array_of(dtype: DType) -> usize {
    usize::from(dtype == DType::F64)
}

/// A buffer in an array, from the nest that first writes it to the last one that reads it.
struct Lifetime {
    buffer: usize,
    elements: usize,
    first: usize,
    last: usize,
}

impl Plan {
    /// Gives the largest buffers their places first, each the lowest one that is free while it is needed. `made` are the inputs that are made
    /// before the first nest.
    pub fn of(program: &Program, nests: &[Nest], made: &[usize]) -> Self {
        let mut lifetimes: Vec<Option<Lifetime>> = program.buffers.iter().map(|_| None).collect();
        let mut at = |buffer: usize, time: usize| {
            let is_kept = match program.buffers[buffer].contents {
                Contents::Computed => true,
                Contents::Input(input) => made.contains(&input),
                Contents::Constant(..) => false,
            };
            if is_kept {
                let elements = program.buffers[buffer].elements.next_multiple_of(ALIGNMENT);
                let new = Lifetime { buffer, elements, first: time, last: time };
                lifetimes[buffer].get_or_insert(new).last = time;
            }
        };
        for &input in made {
            at(program.inputs[input].buffer, 0);
        }
        for (time, nest) in nests.iter().enumerate() {
            nest.loads(&mut |buffer, _| at(buffer, time + 1));
            at(nest.buffer, time + 1);
        }
        for output in &program.outputs {
            at(output.buffer, nests.len() + 1);
        }
        let mut waiting: Vec<Lifetime> = lifetimes.into_iter().flatten().collect();
        waiting.sort_by_key(|one| (std::cmp::Reverse(one.elements), one.first));
        let mut plan = Self { places: vec![None; program.buffers.len()], elements: [0; 2] };
        let mut placed: [Vec<(usize, Lifetime)>; 2] = Default::default();
        for one in waiting {
            let array = array_of(program.buffers[one.buffer].dtype);
            let mut others: Vec<(usize, usize)> = placed[array]
                .iter()
                .filter(|(_, other)| other.first <= one.last && one.first <= other.last)
                .map(|(place, other)| (*place, place + other.elements))
                .collect();
            others.sort_unstable();
            let mut place = 0;
            for (start, end) in others {
                if start >= place + one.elements {
                    break;
                }
                place = place.max(end);
            }
            plan.places[one.buffer] = Some(place);
            plan.elements[array] = plan.elements[array].max(place + one.elements);
            placed[array].push((place, one));
        }
        plan
    }

    /// The size of both arrays.
    pub fn bytes(&self) -> usize {
        4 * self.elements[0] + 8 * self.elements[1]
    }
}
