//! Messages on graphs on every device, against loops over edges in double precision: graphs with one node, without edges, with nodes
//! that have none, with loops and with edges that occur twice.

mod common;

use common::{Pair, for_all, gpu, rng, size, tolerance, view};
use gradewise_kernels::{Array, BorrowedIndex, CudaDevice, DType, Device, Error, Index, ops};
use proptest::prelude::*;
use rand::{Rng, RngExt};

/// Ends of edges between nodes, as numbers and on the device to be tested.
struct Graph {
    nodes: usize,
    receivers: Vec<usize>,
    senders: Vec<usize>,
    on_device: [Index; 2],
}

impl Graph {
    fn of(nodes: usize, [receivers, senders]: [Vec<usize>; 2], device: &Device) -> Self {
        let on_device = [&receivers, &senders].map(|ends| Index::new(ends, nodes, device).unwrap());
        Self { nodes, receivers, senders, on_device }
    }

    /// Few and many edges per node, so that either way to sum is met; some nodes never receive.
    fn draw(device: &Device, rng: &mut impl Rng) -> Self {
        let nodes: usize = [1, 2, 3, 7, 100][rng.random_range(0..5)];
        let edges: usize = [0, 1, 5, 64, 1000][rng.random_range(0..5)];
        let mut ends = |bound: usize| (0..edges).map(|_| rng.random_range(0..bound)).collect();
        let ends = [ends(nodes.div_ceil(2)), ends(nodes)];
        Self::of(nodes, ends, device)
    }

    fn edges(&self) -> usize {
        self.receivers.len()
    }

    fn ends(&self) -> impl Iterator<Item = (usize, (usize, usize))> {
        self.receivers.iter().copied().zip(self.senders.iter().copied()).enumerate()
    }
}

/// Axes before those of nodes or edges.
fn outer(rng: &mut impl Rng) -> Vec<usize> {
    [vec![], vec![1], vec![3], vec![2, 2], vec![0]][rng.random_range(0..5)].clone()
}

fn shape(outer: &[usize], rows: usize, features: usize) -> Vec<usize> {
    [outer, &[rows, features]].concat()
}

/// `[outer, rows, features]` in double precision, read and written by position.
struct Table {
    rows: usize,
    features: usize,
    values: Vec<f64>,
}

impl Table {
    fn of(x: &Array) -> Self {
        let &[.., rows, features] = x.dims() else { panic!("{x:?}") };
        Self { rows, features, values: x.to_f64_vec().unwrap() }
    }

    fn zeros(outer: usize, rows: usize, features: usize) -> Self {
        Self { rows, features, values: vec![0.0; outer * rows * features] }
    }

    fn at(&mut self, block: usize, row: usize, feature: usize) -> &mut f64 {
        &mut self.values[(block * self.rows + row) * self.features + feature]
    }

    fn get(&self, block: usize, row: usize, feature: usize) -> f64 {
        self.values[(block * self.rows + row) * self.features + feature]
    }
}

/// Asserts that an array has these values, to what its dtype holds of sums of terms as large as `scale`. On the host, terms are added one
/// after the other in their dtype, with an error of at most n·u for each of `expected`, where n is their number.
fn check(tested: &Array, expected: &Table, scale: &Table, edges: usize, context: &str) {
    let found = tested.to_f64_vec().unwrap();
    assert_eq!(found.len(), expected.values.len(), "{context}: {}", tested.shape());
    let norm = |values: &[f64]| values.iter().map(|value| value * value).sum::<f64>().sqrt();
    let error = found.iter().zip(&expected.values).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
    let steps = if tested.device() == Device::Cpu { edges as f64 * unit(tested.dtype()) } else { 0.0 };
    let bound = (tolerance(tested.dtype()) + steps) * norm(&scale.values);
    assert!(error <= bound, "{context}: error {error:e} of {bound:e}, shape {}", tested.shape());
}

/// The most by which rounding changes a number of about 1.
fn unit(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON / 2.0,
        _ => f64::from(f32::EPSILON) / 2.0,
    }
}

fn blocks(outer: &[usize]) -> usize {
    outer.iter().product()
}

#[test]
fn edges_have_the_difference_of_their_ends_and_what_is_their_own() {
    for_all(48, |device, dtype, rng, context| {
        let (graph, outer) = (Graph::draw(device, rng), outer(rng));
        // More than 32 features in rows that begin at multiples of 16 bytes, where a block reads them.
        let (features, own) = (size(rng).min(64), size(rng).min(17));
        let h = view(&shape(&outer, graph.nodes, features), dtype, device, rng);
        // Beside features of 16 bits, they may be in f32.
        let of_own = if dtype.is_short() && rng.random_bool(0.5) { DType::F32 } else { dtype };
        let attributes =
            rng.random_bool(0.7).then(|| view(&shape(&outer, graph.edges(), own), of_own, device, rng));
        let own = if attributes.is_some() { own } else { 0 };
        let [receivers, senders] = &graph.on_device;
        let given = attributes.as_ref().map(|pair| &pair.tested);
        let out = ops::edge_difference(&h.tested, given, receivers, senders).unwrap();
        assert_eq!(out.dims(), shape(&outer, graph.edges(), features + own), "{context}");
        assert_eq!(out.dtype(), dtype, "{context}");
        let h = Table::of(&h.reference);
        let mut expected = Table::zeros(blocks(&outer), graph.edges(), features);
        let mut scale = Table::zeros(blocks(&outer), graph.edges(), features);
        for block in 0..blocks(&outer) {
            for (edge, (to, from)) in graph.ends() {
                for f in 0..features {
                    let (a, b) = (h.get(block, to, f), h.get(block, from, f));
                    *expected.at(block, edge, f) = a - b;
                    *scale.at(block, edge, f) = a.abs() + b.abs();
                }
            }
        }
        let axis = outer.len() + 1;
        check(&out.slice(axis, 0..features).unwrap(), &expected, &scale, 0, context);
        if let Some(attributes) = attributes {
            let tested = out.slice(axis, features..features + own).unwrap();
            Pair { tested, reference: attributes.reference }.check_exact(context);
        }
    });
}

/// Samples to be read in place as columns of wider rows, or in any other view.
fn columns(sizes: &[usize], dtype: DType, device: &Device, rng: &mut rand_chacha::ChaCha8Rng) -> Pair {
    let axis = sizes.len() - 1;
    let (before, after) = (rng.random_range(0..4), rng.random_range(0..3));
    let mut wide = sizes.to_vec();
    wide[axis] += before + after;
    if rng.random_bool(0.3) {
        return view(sizes, dtype, device, rng);
    }
    Pair::randn(wide, dtype, device, rng).map(|x| x.slice(axis, before..before + sizes[axis]))
}

#[test]
fn nodes_gain_what_arrives_and_lose_what_leaves() {
    for_all(48, |device, dtype, rng, context| {
        let (graph, outer, features) = (Graph::draw(device, rng), outer(rng), size(rng).min(40));
        let x = columns(&shape(&outer, graph.edges(), features), dtype, device, rng);
        let [receivers, senders] = &graph.on_device;
        let out = ops::net_inflow(&x.tested, receivers, senders).unwrap();
        assert_eq!(out.dims(), shape(&outer, graph.nodes, features), "{context}");
        let x_table = Table::of(&x.reference);
        let mut expected = Table::zeros(blocks(&outer), graph.nodes, features);
        let mut scale = Table::zeros(blocks(&outer), graph.nodes, features);
        for block in 0..blocks(&outer) {
            for (edge, (to, from)) in graph.ends() {
                for f in 0..features {
                    let value = x_table.get(block, edge, f);
                    *expected.at(block, to, f) += value;
                    *expected.at(block, from, f) -= value;
                    *scale.at(block, to, f) += value.abs();
                    *scale.at(block, from, f) += value.abs();
                }
            }
        }
        check(&out, &expected, &scale, graph.edges(), context);
        let again = ops::net_inflow(&x.tested, receivers, senders).unwrap();
        assert_eq!(again.to_f64_vec().unwrap(), out.to_f64_vec().unwrap(), "same bits, {context}");
    });
}

#[test]
fn what_arrives_is_added_to_other_sums() {
    for_all(48, |device, dtype, rng, context| {
        let (graph, outer, features) = (Graph::draw(device, rng), outer(rng), size(rng).min(40));
        let x = columns(&shape(&outer, graph.edges(), features), dtype, device, rng).tested;
        let count = rng.random_range(0..4);
        let summands: Vec<Array> = (0..count)
            .map(|_| columns(&shape(&outer, graph.nodes, features), dtype, device, rng).tested)
            .collect();
        let [receivers, senders] = &graph.on_device;
        let given: Vec<&Array> = summands.iter().collect();
        let out = ops::net_inflow_onto(&given, &x, receivers, senders).unwrap();
        let inflow = ops::net_inflow(&x, receivers, senders).unwrap();
        let expected = ops::add_n(&[&given[..], &[&inflow]].concat()).unwrap();
        assert_eq!(out.dims(), expected.dims(), "{context}");
        assert_eq!(out.to_f64_vec().unwrap(), expected.to_f64_vec().unwrap(), "{count} summands, {context}");
    });
}

#[test]
fn means_of_what_arrives_stand_beside_the_nodes_own() {
    for_all(48, |device, dtype, rng, context| {
        let (graph, outer) = (Graph::draw(device, rng), outer(rng));
        let (own, features) = (size(rng).min(33), size(rng).min(33));
        let h = view(&shape(&outer, graph.nodes, own), dtype, device, rng);
        let messages = view(&shape(&outer, graph.edges(), features), dtype, device, rng);
        let [receivers, _] = &graph.on_device;
        let out = ops::concat_segment_mean(&h.tested, &messages.tested, receivers).unwrap();
        assert_eq!(out.dims(), shape(&outer, graph.nodes, own + features), "{context}");
        let axis = outer.len() + 1;
        let copied = out.slice(axis, 0..own).unwrap();
        Pair { tested: copied, reference: h.reference }.check_exact(context);
        let messages_table = Table::of(&messages.reference);
        let mut expected = Table::zeros(blocks(&outer), graph.nodes, features);
        let mut scale = Table::zeros(blocks(&outer), graph.nodes, features);
        let count = |node: usize| graph.receivers.iter().filter(|&&to| to == node).count() as f64;
        for block in 0..blocks(&outer) {
            for (edge, (to, _)) in graph.ends() {
                for f in 0..features {
                    let value = messages_table.get(block, edge, f) / count(to);
                    *expected.at(block, to, f) += value;
                    *scale.at(block, to, f) += value.abs();
                }
            }
        }
        let means = out.slice(axis, own..own + features).unwrap();
        check(&means, &expected, &scale, graph.edges(), context);
        let again = ops::concat_segment_mean(&h.tested, &messages.tested, receivers).unwrap();
        assert_eq!(again.to_f64_vec().unwrap(), out.to_f64_vec().unwrap(), "same bits, {context}");
    });
}

#[test]
fn members_of_a_segment_get_equal_shares() {
    for_all(48, |device, dtype, rng, context| {
        let (graph, outer, features) = (Graph::draw(device, rng), outer(rng), size(rng).min(40));
        let x = columns(&shape(&outer, graph.nodes, features), dtype, device, rng);
        let [segments, _] = &graph.on_device;
        let out = ops::segment_spread(&x.tested, segments).unwrap();
        assert_eq!(out.dims(), shape(&outer, graph.edges(), features), "{context}");
        let x = Table::of(&x.reference);
        let mut expected = Table::zeros(blocks(&outer), graph.edges(), features);
        for block in 0..blocks(&outer) {
            for (edge, (to, _)) in graph.ends() {
                let members = graph.receivers.iter().filter(|&&other| other == to).count();
                for f in 0..features {
                    *expected.at(block, edge, f) = x.get(block, to, f) / members as f64;
                }
            }
        }
        check(&out, &expected, &expected, 0, context);
    });
}

#[test]
fn replaced_edges_are_what_is_read() {
    for_all(4, |device, dtype, rng, context| {
        let mut ends = || (0..9).map(|_| rng.random_range(0..5)).collect::<Vec<usize>>();
        let (first, second) = ([ends(), ends()], [ends(), ends()]);
        let (h, x) = (
            Pair::randn([2, 5, 3], dtype, device, rng).tested,
            Pair::randn([2, 9, 3], dtype, device, rng).tested,
        );
        let graph = Graph::of(5, first, device);
        let other = Graph::of(5, second, device);
        let run = |graph: &Graph| -> Vec<Vec<f64>> {
            let [to, from] = &graph.on_device;
            let all = [
                ops::edge_difference(&h, Some(&x), to, from).unwrap(),
                ops::net_inflow(&x, to, from).unwrap(),
                ops::concat_segment_mean(&h, &x, to).unwrap(),
                ops::segment_spread(&h, to).unwrap(),
            ];
            all.iter().map(|array| array.to_f64_vec().unwrap()).collect()
        };
        let (before, expected) = (run(&graph), run(&other));
        for (index, source) in graph.on_device.iter().zip(&other.on_device) {
            assert!(index.overwrite(source).unwrap());
        }
        assert_ne!(before, expected, "{context}");
        assert_eq!(run(&graph), expected, "{context}");
    });
}

#[test]
fn a_block_has_the_bits_that_it_has_by_itself() {
    let Some(device) = gpu() else { return };
    // So many rows that a thread takes several blocks of the first axis, seven of which go by steps of four, two and one.
    let (outer, nodes, edges) = (7, 8000, 16000);
    let mut rng = rng(11);
    let ends = [nodes, nodes].map(|bound| (0..edges).map(|_| rng.random_range(0..bound)).collect());
    let graph = Graph::of(nodes, ends, &device);
    let [receivers, senders] = &graph.on_device;
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        // Rows that go through shared memory, that begin at multiples of 16 bytes, and of single elements.
        for features in [28, 40, 13] {
            let mut draw = |rows: usize, features: usize| {
                Array::randn([outer, rows, features], dtype, &device, &mut rng).unwrap()
            };
            let (h, own, x) = (draw(nodes, features), draw(edges, 1), draw(edges, features));
            let (wide, joined) = (draw(edges, features + 1), draw(nodes, 2 * features));
            let run = |first: usize, count: usize| {
                let part = |array: &Array| array.slice(0, first..first + count).unwrap();
                let columns =
                    |array: &Array, first: usize| part(array).slice(2, first..first + features).unwrap();
                let all = [
                    ops::edge_difference(&part(&h), Some(&part(&own)), receivers, senders).unwrap(),
                    ops::edge_difference(&part(&h), None, receivers, senders).unwrap(),
                    ops::net_inflow(&columns(&wide, 0), receivers, senders).unwrap(),
                    ops::net_inflow(&part(&x), receivers, senders).unwrap(),
                    ops::net_inflow_onto(
                        &[&part(&h), &columns(&joined, features)],
                        &part(&x),
                        receivers,
                        senders,
                    )
                    .unwrap(),
                    ops::concat_segment_mean(&part(&h), &part(&x), receivers).unwrap(),
                    ops::segment_spread(&columns(&joined, features), receivers).unwrap(),
                ];
                all.map(|array| array.to_f64_vec().unwrap())
            };
            let together = run(0, outer);
            for block in 0..outer {
                for (operation, (whole, alone)) in together.iter().zip(run(block, 1)).enumerate() {
                    let size = alone.len();
                    let part = &whole[block * size..(block + 1) * size];
                    assert!(
                        part == alone,
                        "{dtype}, {features} features, block {block}, operation {operation}"
                    );
                }
            }
        }
    }
}

fn dot(a: &Array, b: &Array) -> f64 {
    assert_eq!(a.shape(), b.shape());
    a.to_f64_vec().unwrap().iter().zip(b.to_f64_vec().unwrap()).map(|(a, b)| a * b).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn transposes_are_transposes(
        nodes in 1usize..6, picks in prop::collection::vec((0usize..100, 0usize..100), 0..12),
        outer in 1usize..4, features in 0usize..5, seed: u64,
    ) {
        let (receivers, senders) = picks.iter().map(|&(to, from)| (to % nodes, from % nodes)).unzip();
        let graph = Graph::of(nodes, [receivers, senders], &Device::Cpu);
        let [to, from] = &graph.on_device;
        let mut rng = common::rng(seed);
        let mut draw = |rows: usize, features: usize| {
            let (dtype, cpu) = (DType::F64, Device::Cpu);
            Array::randn([outer, rows, features], dtype, &cpu, &mut rng).unwrap()
        };
        let (h, x, y) = (draw(nodes, features), draw(picks.len(), features), draw(nodes, 2 + features));
        let differences = dot(&ops::edge_difference(&h, None, to, from).unwrap(), &x);
        let inflow = dot(&h, &ops::net_inflow(&x, to, from).unwrap());
        prop_assert!((differences - inflow).abs() < 1e-10);
        let own = draw(nodes, 2);
        let means = dot(&ops::concat_segment_mean(&own, &x, to).unwrap(), &y);
        let columns = y.slice(2, 2..2 + features).unwrap();
        let shares = dot(&x, &ops::segment_spread(&columns, to).unwrap());
        let copied = dot(&own, &y.slice(2, 0..2).unwrap().contiguous().unwrap());
        prop_assert!((means - shares - copied).abs() < 1e-10);
    }
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let cpu = &Device::Cpu;
    let zeros = |shape: &[usize]| Array::full(shape, 0.0, DType::F32, cpu).unwrap();
    let index = |values: &[usize], bound| Index::new(values, bound, cpu).unwrap();
    let (to, from) = (index(&[0, 2, 1, 1], 3), index(&[1, 0, 2, 2], 3));
    let h = zeros(&[8, 3, 5]);
    let refused = |result: gradewise_kernels::Result<Array>, parts: &[&str]| {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Core(gradewise_core::Error::Shape { .. })), "{error:?}");
        let message = error.to_string();
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    };
    let short = index(&[1, 0], 3);
    refused(ops::edge_difference(&h, None, &to, &short), &["edge_difference", "senders", "[2]", "[4]"]);
    refused(
        ops::edge_difference(&h, None, &to, &index(&[1, 0, 2, 3], 4)),
        &["`h`", "below the bound 4", "is 3"],
    );
    refused(ops::edge_difference(&zeros(&[8, 4, 5]), None, &to, &from), &["[8, 4, 5]", "3, features]"]);
    refused(ops::edge_difference(&zeros(&[3]), None, &to, &from), &["edge_difference", "[3]"]);
    let own = zeros(&[8, 5, 1]);
    refused(ops::edge_difference(&h, Some(&own), &to, &from), &["attributes", "[8, 5, 1]", "[8, 4, 1]"]);
    refused(ops::edge_difference(&h, Some(&zeros(&[4, 1])), &to, &from), &["attributes", "4 edges"]);
    refused(ops::net_inflow(&h, &to, &from), &["net_inflow", "[8, 3, 5]", "4, features]"]);
    let edges = zeros(&[8, 4, 5]);
    refused(
        ops::net_inflow_onto(&[&h, &edges], &edges, &to, &from),
        &["net_inflow", "summands", "[8, 4, 5]"],
    );
    refused(ops::concat_segment_mean(&h, &own, &to), &["concat_segment_mean", "messages", "[8, 4, 1]"]);
    refused(ops::segment_spread(&own, &to), &["segment_spread", "[8, 5, 1]", "bound of `segments`"]);
    let double = Array::full([8, 4, 1], 0.0, DType::F64, cpu).unwrap();
    let message = ops::concat_segment_mean(&h, &double, &to).unwrap_err().to_string();
    assert!(message.contains("messages") && message.contains("f64"), "{message}");
}

/// 32-bit numbers on a device, as another library would have them.
fn words(values: &[u32], device: &Device) -> Array {
    let bits: Vec<f32> = values.iter().map(|&value| f32::from_bits(value)).collect();
    Array::from_vec(bits, [values.len()], device).unwrap()
}

/// The same indices, grouped here, in memory that is not the library's own.
fn borrowed(values: &[usize], bound: usize, device: &CudaDevice) -> Index {
    let on = Device::Cuda(device.clone());
    let mut order: Vec<u32> = (0..values.len() as u32).collect();
    order.sort_by_key(|&position| values[position as usize]);
    let start = |value: usize| values.iter().filter(|&&other| other < value).count() as u32;
    let starts: Vec<u32> = (0..=bound).map(start).collect();
    let values: Vec<u32> = values.iter().map(|&value| value as u32).collect();
    let length = values.len();
    let lists = [values, starts, order].map(|list| words(&list, &on));
    let [values, starts, order] = [0, 1, 2].map(|list| lists[list].address());
    // SAFETY: the lists are what is described, uploaded before, and kept by the owner.
    unsafe {
        Index::borrow(BorrowedIndex { values, starts, order, length, bound, owner: Box::new(lists) }, device)
    }
    .unwrap()
}

#[test]
fn borrowed_lists_of_a_device_serve_as_others_do() {
    let Some(Device::Cuda(device)) = gpu() else { return };
    let on = Device::Cuda(device.clone());
    for seed in 0..24 {
        let mut rng = rng(seed);
        let graph = Graph::draw(&on, &mut rng);
        let (outer, features) = (outer(&mut rng), size(&mut rng).min(40));
        let lists = [&graph.receivers, &graph.senders].map(|ends| borrowed(ends, graph.nodes, &device));
        let h = view(&shape(&outer, graph.nodes, features), DType::F32, &on, &mut rng).tested;
        let x = view(&shape(&outer, graph.edges(), features), DType::F32, &on, &mut rng).tested;
        let run = |[receivers, senders]: &[Index; 2]| {
            let results = [
                ops::edge_difference(&h, None, receivers, senders).unwrap(),
                ops::net_inflow(&x, receivers, senders).unwrap(),
                ops::concat_segment_mean(&h, &x, receivers).unwrap(),
                ops::segment_spread(&h, receivers).unwrap(),
                ops::segment_sum(&x, outer.len(), receivers).unwrap(),
                ops::index_select(&h, outer.len(), senders).unwrap(),
            ];
            results.map(|result| result.to_f64_vec().unwrap())
        };
        assert_eq!(run(&lists), run(&graph.on_device), "the same bits, seed {seed}");
        // They come from the device when the host asks.
        for (list, ends) in lists.iter().zip([&graph.receivers, &graph.senders]) {
            assert_eq!((list.len(), list.bound()), (ends.len(), graph.nodes));
            assert_eq!(&list.to_vec().unwrap(), ends, "seed {seed}");
            let there = list.to_device(&Device::Cpu).unwrap();
            assert!(list.same_indices(&there).unwrap() && there.same_indices(list).unwrap());
            assert!(!list.overwrite(&there).unwrap(), "another library's memory is not written");
        }
        let counts = |list: &Index| list.reciprocal_counts(DType::F64).unwrap().to_f64_vec().unwrap();
        assert_eq!(counts(&lists[0]), counts(&graph.on_device[0]), "seed {seed}");
    }
}
