//! Points with the edges and triangles between them.

use gradewise_autograd::{Tensor, concat};
use gradewise_kernels::{Array, Index};
use gradewise_nn::data::Edges;
use gradewise_nn::{Error, Placement, Result};
use std::sync::{Arc, Mutex, PoisonError};

/// Kinds of simplices: points, edges, triangles.
const KINDS: usize = 3;
/// Kinds of messages: between points joined by an edge, from points to their edges and back, from edges to their triangles and back.
const MESSAGES: usize = 5;

/// All edges and triangles between the points of graphs, with messages as in Liu et al. (2024, arXiv:2402.10011): between points, from
/// faces to what they bound, and back. Simplices are numbered kind by kind, all points of all graphs first.
#[derive(Clone, Debug)]
pub struct SimplicialComplex {
    /// Points of all graphs.
    pub points: usize,
    /// The sender and receiver simplex of each message.
    pub messages: Edges,
    /// `[blades, messages, 5]`: the kind of each message, one-hot in the scalar blade.
    pub attributes: Tensor,
    /// The graph of each simplex.
    pub graphs: Index,
    /// `[blades, simplices, 3]`: the kind of each simplex, one-hot in the scalar blade.
    kinds: Tensor,
    /// Incidences: a point of a simplex, and the simplex.
    vertices: [Index; 2],
    /// Incidences: two points of a simplex, and the simplex.
    pairs: [Index; 3],
}

impl SimplicialComplex {
    /// The number of channels that [`lift`](Self::lift) returns for `channels` input channels.
    pub const fn lifted(channels: usize) -> usize {
        2 * channels + KINDS
    }

    /// Channels of [`attributes`](Self::attributes).
    pub const ATTRIBUTES: usize = MESSAGES;

    /// Every edge and every triangle within each of `graphs` graphs of `points` points, for multivectors of `blades` blades.
    ///
    /// # Errors
    /// More simplices than an index can hold, no blades, a dtype the device does not serve, or no memory.
    pub fn complete(graphs: usize, points: usize, blades: usize, placement: &Placement) -> Result<Self> {
        let all = graphs * points;
        let mut sets: Vec<Vec<usize>> = (0..all).map(|point| vec![point]).collect();
        let mut numbers = std::collections::HashMap::new();
        for size in [2, 3] {
            for graph in 0..graphs {
                let first = graph * points;
                for a in first..first + points {
                    for b in a + 1..first + points {
                        if size == 2 {
                            numbers.insert((a, b), sets.len());
                            sets.push(vec![a, b]);
                            continue;
                        }
                        sets.extend((b + 1..first + points).map(|c| vec![a, b, c]));
                    }
                }
            }
        }
        let edge = |a: usize, b: usize| numbers.get(&(a, b)).copied().unwrap_or(0);
        let (mut senders, mut receivers, mut of_message) = (Vec::new(), Vec::new(), Vec::new());
        let mut send = |from: usize, to: usize, kind: usize| {
            senders.push(from);
            receivers.push(to);
            of_message.push(kind);
        };
        let (mut vertices, mut pairs) = ([const { Vec::new() }; 2], [const { Vec::new() }; 3]);
        for (simplex, set) in sets.iter().enumerate() {
            for (place, &a) in set.iter().enumerate() {
                [a, simplex].into_iter().zip(&mut vertices).for_each(|(value, list)| list.push(value));
                for &b in &set[place + 1..] {
                    [a, b, simplex].into_iter().zip(&mut pairs).for_each(|(value, list)| list.push(value));
                }
            }
            match set[..] {
                [a, b] => {
                    send(a, b, 0);
                    send(b, a, 0);
                    for point in [a, b] {
                        send(point, simplex, 1);
                        send(simplex, point, 2);
                    }
                }
                [a, b, c] => {
                    for face in [edge(a, b), edge(a, c), edge(b, c)] {
                        send(face, simplex, 3);
                        send(simplex, face, 4);
                    }
                }
                _ => {}
            }
        }
        let index = |values: &[usize], bound: usize| Index::new(values, bound, &placement.device);
        let count = sets.len();
        let graph_of: Vec<usize> = sets.iter().map(|set| set[0] / points.max(1)).collect();
        let of_simplex: Vec<usize> = sets.iter().map(|set| set.len() - 1).collect();
        let [points_of, simplices_of] = &vertices;
        let [first, second, whole] = &pairs;
        Ok(Self {
            points: all,
            messages: Edges { receivers: index(&receivers, count)?, senders: index(&senders, count)? },
            attributes: chosen(&of_message, MESSAGES, blades, placement)?,
            graphs: index(&graph_of, graphs)?,
            kinds: chosen(&of_simplex, KINDS, blades, placement)?,
            vertices: [index(points_of, all)?, index(simplices_of, count)?],
            pairs: [index(first, all)?, index(second, all)?, index(whole, count)?],
        })
    }

    /// Number of simplices.
    pub fn simplices(&self) -> usize {
        self.graphs.len()
    }

    /// Features of the points `[blades, points, channels]` as features of all simplices, `[blades, simplices, 2·channels + 3]`: the mean
    /// over a simplex's points, the sum over its pairs of points of ‖x_a − x_b‖² as a scalar, and its kind. The features do not depend on
    /// the order of the points and, in Cl(n,0), are equivariant under rotations.
    ///
    /// # Errors
    /// Features of another number of points or blades.
    pub fn lift(&self, x: &Tensor) -> Result<Tensor> {
        let ([points, simplices], [first, second, whole]) = (&self.vertices, &self.pairs);
        let mean = x.index_select(1, points)?.segment_mean(1, simplices)?;
        let squares = x.edge_difference(None, first, second)?.square()?.sum(&[0], true)?;
        let spread = squares.segment_sum(1, whole)?;
        let mut rest = mean.shape().to_vec();
        rest[0] -= 1;
        let rest = Tensor::zeros(rest, x.dtype(), &x.device())?;
        Ok(concat(&[&mean, &concat(&[&spread, &rest], 0)?, &self.kinds], 2)?)
    }
}

/// `[blades, items, kinds]`: the kind of each item, one-hot in the scalar blade.
fn chosen(kind_of: &[usize], kinds: usize, blades: usize, placement: &Placement) -> Result<Tensor> {
    let mut values = vec![0.0; blades * kind_of.len() * kinds];
    for (slot, &kind) in values.chunks_exact_mut(kinds).zip(kind_of) {
        slot[kind] = 1.0;
    }
    let shape = [blades, kind_of.len(), kinds];
    Ok(Tensor::new(Array::from_f64(&values, shape, placement.dtype, &placement.device)?))
}

/// A cache of complexes: a model whose batches all have one size builds its complex once.
#[derive(Debug, Default)]
pub struct Complexes(Mutex<Vec<Known>>);

impl Clone for Complexes {
    /// A cache without complexes.
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// A complex, with the sizes and the placement it was built for.
type Known = ([usize; 3], Placement, Arc<SimplicialComplex>);

/// The capacity of the cache.
const KEPT: usize = 4;

impl Complexes {
    /// As [`SimplicialComplex::complete`].
    ///
    /// # Errors
    /// As [`SimplicialComplex::complete`]; [`Error::Argument`] for graphs without points.
    pub fn complete(
        &self,
        graphs: usize,
        points: usize,
        blades: usize,
        placement: &Placement,
    ) -> Result<Arc<SimplicialComplex>> {
        if points == 0 || blades == 0 {
            return Err(Error::Argument {
                operation: "SimplicialComplex",
                argument: "points",
                actual: format!("{points} points, {blades} blades"),
                expected: "at least one of each".to_owned(),
            });
        }
        let sizes = [graphs, points, blades];
        // A panic cannot leave a partial entry, so a poisoned lock is usable.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, _, complex)) = known.iter().find(|(of, place, _)| *of == sizes && place == placement)
        {
            return Ok(Arc::clone(complex));
        }
        let complex = Arc::new(SimplicialComplex::complete(graphs, points, blades, placement)?);
        if known.len() == KEPT {
            known.remove(0);
        }
        known.push((sizes, placement.clone(), Arc::clone(&complex)));
        Ok(complex)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradewise_kernels::{DType, Device};

    #[test]
    fn simplices_messages_and_what_points_give_them() {
        let placement = Placement::new(&Device::Cpu, DType::F64);
        let complex = SimplicialComplex::complete(2, 4, 2, &placement).unwrap();
        // Each graph has 4 points, 6 edges and 4 triangles, and 12, 12 + 12 and 12 + 12 messages.
        assert_eq!((complex.points, complex.simplices()), (8, 28));
        assert_eq!(complex.messages.senders.len(), 2 * 60);
        let graphs = complex.graphs.to_vec().unwrap();
        assert_eq!((graphs[3], graphs[4], graphs[8], graphs[14], graphs[27]), (0, 1, 0, 1, 1));
        let (senders, receivers) = (&complex.messages.senders, &complex.messages.receivers);
        let (senders, receivers) = (senders.to_vec().unwrap(), receivers.to_vec().unwrap());
        for (from, to) in senders.iter().zip(&receivers) {
            assert_eq!(graphs[*from], graphs[*to]);
            assert!(senders.iter().zip(&receivers).any(|(a, b)| (a, b) == (to, from)), "and back");
        }
        // Points on a line: e1 has the number of the point.
        let x = [[0.0; 8], std::array::from_fn(|point| point as f64)].concat();
        let x = Tensor::from_slice(&x, [2, 8, 1], &Device::Cpu).unwrap();
        let lifted = complex.lift(&x).unwrap();
        assert_eq!(lifted.shape().dims(), [2, 28, SimplicialComplex::lifted(1)]);
        let values = lifted.to_vec::<f64>().unwrap();
        let at = |blade: usize, simplex: usize| &values[(blade * 28 + simplex) * 5..][..5];
        assert_eq!((at(0, 2), at(1, 2)), (&[0.0, 0.0, 1.0, 0.0, 0.0][..], &[2.0, 0.0, 0.0, 0.0, 0.0][..]));
        // The edge of points 0 and 2 is the second, the last triangle has points 5, 6 and 7.
        assert_eq!((at(0, 9), at(1, 9)), (&[0.0, 4.0, 0.0, 1.0, 0.0][..], &[1.0, 0.0, 0.0, 0.0, 0.0][..]));
        assert_eq!((at(0, 27), at(1, 27)), (&[0.0, 6.0, 0.0, 0.0, 1.0][..], &[6.0, 0.0, 0.0, 0.0, 0.0][..]));
    }

    #[test]
    fn a_complex_is_made_once() {
        let (placement, complexes) = (Placement::new(&Device::Cpu, DType::F32), Complexes::default());
        let of = |graphs| complexes.complete(graphs, 3, 8, &placement).unwrap();
        let one = of(1);
        assert!(Arc::ptr_eq(&one, &of(1)) && !Arc::ptr_eq(&one, &of(2)));
        (3..7).for_each(|graphs| assert_eq!(of(graphs).simplices(), 7 * graphs));
        assert!(!Arc::ptr_eq(&one, &of(1)), "the oldest are forgotten");
        assert!(complexes.complete(1, 0, 8, &placement).is_err());
    }
}
