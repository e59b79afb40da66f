//! Operators on fields: gradients of first and second order against central differences, and the symmetries that the definitions have.
//! Values are those of golden files (tests/golden/fields of the workspace).

use gradewise_autograd::{
    GradcheckOptions, Result, Tensor,
    fields::{
        self, Aggregation, BatchNorm, ConjugateLinear, ConvolutionOptions, NormOptions, Padding, Pairing,
        Side, SpectralOptions, SteerableKernel, SteerableLayerWeights, SteerablePadding, Whitening,
    },
    gradcheck, gradgradcheck,
};
use gradewise_core::OrderedMetric;
use gradewise_kernels::{Array, DType, Device, Index};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

const CPU: Device = Device::Cpu;

fn random(shape: &[usize], seed: u64) -> Tensor {
    Tensor::randn(shape, DType::F64, &CPU, &mut ChaCha8Rng::seed_from_u64(seed)).unwrap()
}

fn metric(text: &str) -> OrderedMetric {
    text.parse().unwrap()
}

/// ‖a − b‖/‖b‖.
fn difference(a: &Tensor, b: &Tensor) -> f64 {
    assert_eq!(a.shape(), b.shape());
    let (a, b) = (a.to_vec::<f64>().unwrap(), b.to_vec::<f64>().unwrap());
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    norm(&mut a.iter().zip(&b).map(|(a, b)| a - b)) / norm(&mut b.iter().copied())
}

/// First and second derivatives of `function` at normal inputs of these shapes.
fn check(name: &str, function: impl Fn(&[Tensor]) -> Result<Tensor>, shapes: &[&[usize]]) {
    let inputs: Vec<Tensor> =
        shapes.iter().enumerate().map(|(at, shape)| random(shape, 7 + at as u64)).collect();
    let inputs: Vec<&Tensor> = inputs.iter().collect();
    let options = GradcheckOptions { samples: 12, ..GradcheckOptions::default() };
    gradcheck(&inputs, &options, &function).unwrap_or_else(|error| panic!("{name}: {error}"));
    let options = GradcheckOptions { samples: 6, relative: 1e-5, absolute: 1e-7, ..options };
    gradgradcheck(&inputs, &options, &function)
        .unwrap_or_else(|error| panic!("{name}, second order: {error}"));
}

#[test]
fn convolutions_have_both_derivatives() {
    let options = ConvolutionOptions {
        stride: vec![2, 1],
        dilation: vec![1, 2],
        padding: vec![[1, 2], [2, 1]],
        mode: Padding::Zeros,
        groups: 2,
    };
    for text in ["1,1", "-1,1", "0,1"] {
        let metric = metric(text);
        let conv = |i: &[Tensor]| fields::clifford_conv(&metric, &i[0], &i[1], Some(&i[2]), &options);
        check("clifford_conv", conv, &[&[4, 2, 4, 5, 2], &[4, 4, 1, 2, 3], &[4, 4]]);
        let transposed = |i: &[Tensor]| {
            fields::clifford_conv_transpose(&metric, &i[0], &i[1], Some(&i[2]), &options, &[1, 0])
        };
        check("clifford_conv_transpose", transposed, &[&[4, 1, 4, 5, 2], &[4, 2, 2, 2, 3], &[4, 4]]);
    }
    for mode in [Padding::Circular, Padding::Reflect, Padding::Symmetric] {
        let options = ConvolutionOptions { mode, ..ConvolutionOptions::new(1) }.same(&[3]);
        let conv = |i: &[Tensor]| fields::clifford_conv(&metric("-1"), &i[0], &i[1], None, &options);
        check("clifford_conv of padded ends", conv, &[&[2, 1, 4, 2], &[2, 1, 2, 3]]);
    }
    let linear = |i: &[Tensor]| fields::clifford_linear(&metric("1,-1"), &i[0], &i[1], Some(&i[2]));
    check("clifford_linear", linear, &[&[4, 3, 2], &[4, 3, 2], &[4, 3]]);
    let same = ConvolutionOptions::new(2).same(&[3, 3]);
    let rotation = |i: &[Tensor]| fields::correlate(&i[0], &fields::rotation_kernel(&i[1], &i[2])?, &same);
    check("rotation", rotation, &[&[4, 1, 3, 2, 1], &[4, 2, 1, 3, 3], &[2, 1, 3, 3]]);
    let g3 = |i: &[Tensor]| fields::correlate(&i[0], &fields::g3_kernel(&i[1], &i[2])?, &same);
    check("g3_conv", g3, &[&[3, 1, 3, 2, 1], &[4, 2, 1, 3, 3], &[2, 1, 3, 3]]);
    let g3 = |i: &[Tensor]| {
        fields::correlate_transposed(&i[0], &fields::g3_kernel_transposed(&i[1], &i[2])?, &same, &[0, 0])
    };
    check("g3_conv_transpose", g3, &[&[3, 1, 3, 2, 2], &[4, 2, 1, 3, 3], &[2, 1, 3, 3]]);
}

#[test]
fn spectral_layers_have_both_derivatives() {
    for (text, side) in [("1,1", Side::Right), ("-1,-1", Side::Left), ("1,-1", Side::Right)] {
        let options = SpectralOptions { side, ..SpectralOptions::reference(&[1, 2]) };
        let layer =
            |i: &[Tensor]| fields::clifford_spectral_conv(&metric(text), &i[0], Some(&i[1]), &options);
        check("clifford_spectral_conv", layer, &[&[4, 1, 3, 4, 2], &[4, 1, 2, 2, 4]]);
    }
    for octant_bug in [false, true] {
        let options =
            SpectralOptions { pairing: Pairing::Dual, octant_bug, ..SpectralOptions::reference(&[1, 1, 1]) };
        let layer =
            |i: &[Tensor]| fields::clifford_spectral_conv(&metric("1,1,1"), &i[0], Some(&i[1]), &options);
        check("clifford_spectral_conv", layer, &[&[8, 1, 2, 3, 2, 1], &[8, 1, 1, 2, 2, 2]]);
    }
}

#[test]
fn norms_gates_and_conjugations_have_both_derivatives() {
    for whitening in [Whitening::Lower, Whitening::Reference] {
        let options = NormOptions { whitening, ..NormOptions::default() };
        let norm = |i: &[Tensor]| {
            let parameters = BatchNorm { weight: Some(&i[1]), bias: Some(&i[2]) };
            Ok(fields::clifford_batch_norm(&i[0], parameters, None, options)?.0)
        };
        check("clifford_batch_norm", norm, &[&[4, 3, 4, 2], &[4, 4, 2], &[4, 2]]);
        let norm = |i: &[Tensor]| {
            let parameters = BatchNorm { weight: Some(&i[1]), bias: Some(&i[2]) };
            fields::clifford_group_norm(&i[0], parameters, 2, options)
        };
        check("clifford_group_norm", norm, &[&[2, 2, 3, 4], &[2, 2, 2], &[2, 2]]);
    }
    let norm = |i: &[Tensor]| fields::g3_group_norm(&i[0], &i[1], &i[2], 2, Some(1e-6));
    check("g3_group_norm", norm, &[&[3, 2, 3, 4], &[4], &[4, 3]]);
    let gate = |i: &[Tensor]| {
        let aggregation = Aggregation::Linear { weight: &i[1], bias: &i[2] };
        fields::mv_act(&i[0], &[1, 2, 3], &[2, 7, 1], aggregation)
    };
    check("mv_act", gate, &[&[3, 2, 2], &[2, 3], &[2]]);
    let conjugate = |i: &[Tensor]| {
        let operands = ConjugateLinear { x: &i[0], action: &i[1], weight: &i[2], embed: &i[3] };
        fields::pga_conjugate_linear(&operands, &[11, 12, 13, 14], &[0, 5, 6, 7, 8, 9, 10, 15])
    };
    check("pga_conjugate_linear", conjugate, &[&[4, 2, 2], &[1, 2, 8], &[1, 2], &[2, 1]]);
    let pooled = |i: &[Tensor]| fields::upsample(&fields::pool_mean(&i[0], &[2, 1])?.square()?, &[1, 3]);
    check("pool_mean and upsample", pooled, &[&[2, 1, 4, 2, 1]]);
}

/// Weights of a kernel, taken from `parts` in the order of its fields.
fn steerable(
    metric: &OrderedMetric,
    size: usize,
    channels: [usize; 3],
) -> (Vec<Vec<usize>>, impl Fn(&[Tensor]) -> SteerableKernel) {
    conditioned(metric, size, channels, 0)
}

/// The same of a kernel that depends on `conditions` multivectors besides the position.
fn conditioned(
    metric: &OrderedMetric,
    size: usize,
    [inputs, outputs, hidden]: [usize; 3],
    conditions: usize,
) -> (Vec<Vec<usize>>, impl Fn(&[Tensor]) -> SteerableKernel) {
    let (grades, paths) = (metric.dimension() + 1, metric.paths().len());
    let mut shapes = vec![vec![1, 1, 1], vec![outputs, inputs, grades], vec![outputs, inputs, paths]];
    let widths = [(1 + conditions, hidden), (hidden, hidden), (hidden, inputs * outputs)];
    for (a, b) in widths {
        let layer = [
            vec![b, a, paths],
            vec![a, a, grades],
            vec![1, a, grades],
            vec![b, a, grades],
            vec![1, b, 1],
            vec![1, b, grades],
        ];
        shapes.extend(layer);
    }
    let build = move |parts: &[Tensor]| SteerableKernel {
        size,
        inputs,
        outputs,
        bias_blades: vec![0],
        // Away from 0, where the shell has no derivative.
        position_width: parts[0].mul_scalar(0.2).unwrap().add_scalar(1.0).unwrap(),
        widths: parts[1].square().unwrap().mul_scalar(0.1).unwrap(),
        head: parts[2].clone(),
        layers: parts[3..]
            .chunks_exact(6)
            .enumerate()
            .map(|(at, parts)| SteerableLayerWeights {
                product: parts[0].mul_scalar(0.3).unwrap(),
                right: parts[1].clone(),
                right_norm: parts[2].clone(),
                linear: parts[3].clone(),
                bias: Some(parts[4].clone()),
                norm: (at < 2).then(|| parts[5].clone()),
            })
            .collect(),
    };
    (shapes, build)
}

fn random_kernel(metric: &OrderedMetric, size: usize, channels: [usize; 3], seed: u64) -> SteerableKernel {
    random_conditioned(metric, size, channels, 0, seed)
}

fn random_conditioned(
    metric: &OrderedMetric,
    size: usize,
    channels: [usize; 3],
    conditions: usize,
    seed: u64,
) -> SteerableKernel {
    let (shapes, build) = conditioned(metric, size, channels, conditions);
    let parts: Vec<Tensor> =
        shapes.iter().enumerate().map(|(at, shape)| random(shape, seed + at as u64)).collect();
    build(&parts)
}

#[test]
fn steerable_convolutions_have_both_derivatives() {
    for text in ["1,1", "-1,1"] {
        let metric = metric(text);
        let (shapes, build) = steerable(&metric, 3, [1, 2, 2]);
        let mut shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        let count = shapes.len();
        shapes.extend([&[4usize, 1, 3, 3, 1][..], &[2, 1]]);
        let conv = |i: &[Tensor]| {
            let (kernel, bias) = (build(&i[..count]), Some(&i[count + 1]));
            fields::cs_conv(&metric, &i[count], &kernel, bias, 1, SteerablePadding::Same)
        };
        check("cs_conv", conv, &shapes);
        let norm = |i: &[Tensor]| fields::cs_mv_gelu(&fields::cs_layer_norm(&metric, &i[0])?);
        check("cs_layer_norm and cs_mv_gelu", norm, &[&[4, 3, 2]]);
    }
}

/// A convolution whose kernel depends on the mean of its own field.
fn self_conditioned(
    metric: &OrderedMetric,
    x: &Tensor,
    kernel: &SteerableKernel,
    bias: Option<&Tensor>,
    stride: usize,
    padding: SteerablePadding,
) -> gradewise_autograd::Result<Tensor> {
    let condition = fields::cs_condition(metric, x)?;
    fields::cs_conv_conditioned(metric, x, kernel, &condition, bias, stride, padding)
}

#[test]
fn conditioned_convolutions_have_both_derivatives() {
    for text in ["1,1", "-1,1"] {
        let metric = metric(text);
        let (shapes, build) = conditioned(&metric, 3, [1, 2, 2], 1);
        let mut shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        let count = shapes.len();
        shapes.extend([&[4usize, 2, 3, 3, 1][..], &[2, 1]]);
        let conv = |i: &[Tensor]| {
            let (kernel, bias) = (build(&i[..count]), Some(&i[count + 1]));
            self_conditioned(&metric, &i[count], &kernel, bias, 1, SteerablePadding::Same)
        };
        check("cs_conv_conditioned", conv, &shapes);
    }
}

#[test]
fn conditioned_convolutions_commute_with_the_symmetries_of_the_grid_sample_by_sample() {
    for text in ["1,1", "1,-1", "1,1,1", "-1,1,1"] {
        let metric = metric(text);
        let (n, blades) = (metric.dimension(), metric.blade_count());
        let kernel = random_conditioned(&metric, 3, [2, 2, 3], 2, 31);
        let x = random(&[&[blades, 3], &vec![5; n][..], &[2]].concat(), 5);
        let bias = random(&[2, 1], 6);
        for (stride, padding) in [
            (1, SteerablePadding::Same),
            (2, SteerablePadding::Same),
            (1, SteerablePadding::Valid),
            (1, SteerablePadding::Filled(Padding::Circular)),
        ] {
            let f = |x: &Tensor| self_conditioned(&metric, x, &kernel, Some(&bias), stride, padding).unwrap();
            let y = f(&x);
            for map in signed_permutations(&metric) {
                let error = difference(&f(&moved(&metric, &map, &x)), &moved(&metric, &map, &y));
                assert!(error < 1e-12, "{text}: {error:e}");
            }
            for sample in 0..3 {
                let alone = f(&x.slice(1, sample..sample + 1).unwrap());
                assert!(difference(&alone, &y.slice(1, sample..sample + 1).unwrap()) < 1e-13, "{text}");
            }
        }
        // Twice the field has more than twice the result: the kernel is another.
        let f = |x: &Tensor| self_conditioned(&metric, x, &kernel, None, 1, SteerablePadding::Same).unwrap();
        assert!(
            difference(&f(&x.mul_scalar(2.0).unwrap()), &f(&x).mul_scalar(2.0).unwrap()) > 1e-2,
            "{text}"
        );
    }
}

/// A first layer that does not look at the condition makes the kernel of the position alone.
#[test]
fn a_condition_that_no_weight_reads_changes_nothing() {
    let metric = metric("-1,1");
    let channels = [2, 3, 4];
    let plain = random_kernel(&metric, 3, channels, 51);
    let mut kernel = plain.clone();
    let padded = |weight: &Tensor, axes: &[usize]| {
        axes.iter().fold(weight.clone(), |weight, &axis| {
            let mut shape = weight.shape().to_vec();
            shape[axis] = 2;
            let zeros = Tensor::zeros(shape, weight.dtype(), &weight.device()).unwrap();
            gradewise_autograd::concat(&[&weight, &zeros], axis).unwrap()
        })
    };
    let first = &mut kernel.layers[0];
    (first.product, first.linear) = (padded(&first.product, &[1]), padded(&first.linear, &[1]));
    (first.right, first.right_norm) = (padded(&first.right, &[0, 1]), padded(&first.right_norm, &[1]));
    let x = random(&[4, 2, 5, 4, 2], 52);
    let expected = fields::cs_conv(&metric, &x, &plain, None, 1, SteerablePadding::Same).unwrap();
    let found = self_conditioned(&metric, &x, &kernel, None, 1, SteerablePadding::Same).unwrap();
    assert!(difference(&found, &expected) < 1e-14);
    for (condition, said) in
        [(vec![4, 3, 2], "[4, 2, channels]"), (vec![3, 2, 2], "3 blades"), (vec![4, 2], "shape")]
    {
        let condition = random(&condition, 53);
        let error =
            fields::cs_conv_conditioned(&metric, &x, &kernel, &condition, None, 1, SteerablePadding::Same);
        let error = error.unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}

/// The product of every multivector of a field with a fixed one on its left.
fn left_product(metric: &OrderedMetric, u: &[f64], x: &Tensor) -> Tensor {
    let blades = metric.blade_count();
    let mut matrix = vec![0.0; blades * blades];
    for (i, &u) in u.iter().enumerate() {
        for k in 0..blades {
            let (j, sign) = metric.product(i, k);
            matrix[j * blades + k] += u * f64::from(sign);
        }
    }
    on_blades(&matrix, x)
}

/// A matrix `[I, I]` applied to the blades of a field.
fn on_blades(matrix: &[f64], x: &Tensor) -> Tensor {
    let blades = x.shape()[0];
    let matrix = Tensor::new(Array::from_f64(matrix, [blades, blades], DType::F64, &CPU).unwrap());
    let rest = x.shape().elements() / blades;
    matrix.matmul(&x.reshape([blades, rest]).unwrap()).unwrap().reshape(x.shape()).unwrap()
}

/// A field shifted by so many positions along each axis of a periodic grid.
fn shifted(x: &Tensor, by: &[usize]) -> Tensor {
    by.iter().enumerate().fold(x.clone(), |x, (axis, by)| {
        let size = x.shape()[axis + 2];
        let from: Vec<usize> = (0..size).map(|at| (at + size - by % size) % size).collect();
        x.index_select(axis + 2, &Index::new(&from, size, &CPU).unwrap()).unwrap()
    })
}

#[test]
fn clifford_convolutions_commute_with_left_products_and_shifts() {
    for text in ["1,1", "1,-1", "-1,1,1", "0,1"] {
        let metric = metric(text);
        let (n, blades) = (metric.dimension(), metric.blade_count());
        let x = random(&[&[blades, 2], &vec![4; n][..], &[2]].concat(), 1);
        let w = random(&[&[blades, 3, 2], &vec![3; n][..]].concat(), 2);
        let u = random(&[blades], 3).to_vec::<f64>().unwrap();
        let options =
            ConvolutionOptions { mode: Padding::Circular, ..ConvolutionOptions::new(n) }.same(&vec![3; n]);
        let f = |x: &Tensor| fields::clifford_conv(&metric, x, &w, None, &options).unwrap();
        assert!(difference(&f(&left_product(&metric, &u, &x)), &left_product(&metric, &u, &f(&x))) < 1e-14);
        let by = &[1, 2, 3][..n];
        assert!(difference(&f(&shifted(&x, by)), &shifted(&f(&x), by)) < 1e-14);
        // The feature is the left factor: products on the right are no symmetry.
        let right = |x: &Tensor| {
            let mut matrix = vec![0.0; blades * blades];
            for k in 0..blades {
                for (i, &u) in u.iter().enumerate() {
                    let (j, sign) = metric.product(k, i);
                    matrix[j * blades + k] += u * f64::from(sign);
                }
            }
            on_blades(&matrix, x)
        };
        assert!(difference(&f(&right(&x)), &right(&f(&x))) > 0.1, "{text}");
        let w = random(&[blades, 3, 2], 4);
        let f = |x: &Tensor| fields::clifford_linear(&metric, x, &w, None).unwrap();
        assert!(difference(&f(&left_product(&metric, &u, &x)), &left_product(&metric, &u, &f(&x))) < 1e-14);
    }
}

#[test]
fn the_gradient_of_a_clifford_convolution_is_a_transposed_one() {
    for text in ["1,1", "1,-1", "-1,1,1"] {
        let metric = metric(text);
        let (n, blades) = (metric.dimension(), metric.blade_count());
        let x = random(&[&[blades, 1], &vec![4; n][..], &[2]].concat(), 1).requires_grad();
        let w = random(&[&[blades, 3, 2], &vec![3; n][..]].concat(), 2);
        let options = ConvolutionOptions::new(n).same(&vec![3; n]);
        let y = fields::clifford_conv(&metric, &x, &w, None, &options).unwrap();
        let cotangent = random(y.shape(), 3);
        let gradients = y.mul(&cotangent).unwrap().sum_all().unwrap().backward().unwrap();
        let signs: Vec<f64> =
            (0..blades).map(|r| f64::from(metric.reverse_sign(r) * metric.squared_norm(r))).collect();
        let mut shape = vec![1; n + 3];
        shape[0] = blades;
        let signs = Tensor::new(Array::from_f64(&signs, shape, DType::F64, &CPU).unwrap());
        let adjoint = fields::clifford_conv_transpose(
            &metric,
            &cotangent,
            &w.mul(&signs).unwrap(),
            None,
            &options,
            &vec![0; n],
        );
        assert!(difference(gradients.get(&x).unwrap(), &adjoint.unwrap()) < 1e-14, "{text}");
    }
}

#[test]
fn spectral_layers_commute_with_shifts_where_the_algebra_says_so() {
    let reference = Pairing::Reference;
    for (text, pairing, side, commutes) in [
        ("1,1", reference, Side::Left, true),
        ("1,1", reference, Side::Right, false),
        ("-1,-1", reference, Side::Right, true),
        ("1,-1", reference, Side::Right, false),
        ("1,-1", reference, Side::Left, false),
        ("1,1,1", reference, Side::Right, false),
        ("1,1,1", Pairing::Dual, Side::Right, true),
        ("1,1,1", Pairing::Dual, Side::Left, true),
        ("1,-1,-1", Pairing::Dual, Side::Right, true),
    ] {
        let metric = metric(text);
        let (n, blades) = (metric.dimension(), metric.blade_count());
        let x = random(&[&[blades, 1], &[6, 5, 4][..n], &[2]].concat(), 1);
        let w = random(&[&[blades, 2, 2], &vec![4; n][..]].concat(), 2);
        let options = SpectralOptions { pairing, side, ..SpectralOptions::reference(&vec![2; n]) };
        let f = |x: &Tensor| fields::clifford_spectral_conv(&metric, x, Some(&w), &options).unwrap();
        let by = &[2, 1, 1][..n];
        let error = difference(&f(&shifted(&x, by)), &shifted(&f(&x), by));
        assert_eq!(error < 1e-12, commutes, "{text} {pairing:?} {side:?}: {error:.1e}");
        assert!(commutes || error > 0.1, "{text} {pairing:?} {side:?}: {error:.1e}");
    }
    // Without a product only frequencies are lost: a field of low frequencies stays as it is.
    let x = random(&[4, 1, 6, 6, 1], 1);
    let smooth = |x: &Tensor| {
        fields::clifford_spectral_conv(&metric("1,1"), x, None, &SpectralOptions::new(&[2, 2])).unwrap()
    };
    let once = smooth(&x);
    assert!(difference(&smooth(&once), &once) < 1e-12 && difference(&once, &x) > 0.1);
    let refused = |text: &str, options: &SpectralOptions| {
        let x = random(&[4, 1, 6, 6, 1], 1);
        fields::clifford_spectral_conv(&metric(text), &x, None, options).unwrap_err().to_string()
    };
    assert!(refused("1,1", &SpectralOptions::new(&[4, 2])).contains("2·modes"));
    let dual = SpectralOptions { pairing: Pairing::Dual, ..SpectralOptions::reference(&[2, 2]) };
    assert!(refused("1,-1", &dual).contains("pseudoscalar"));
}

/// The action on blades of a linear map of vectors: its minors.
fn minors(metric: &OrderedMetric, map: &[Vec<f64>]) -> Vec<f64> {
    let (n, blades) = (metric.dimension(), metric.blade_count());
    // Blades in the order of the metric, by their generators.
    let mut generators: Vec<Vec<usize>> =
        (0..1usize << n).map(|mask| (0..n).filter(|g| mask >> g & 1 == 1).collect()).collect();
    generators.sort_by_key(|set: &Vec<usize>| (set.len(), set.clone()));
    let mut matrix = vec![0.0; blades * blades];
    for (a, rows) in generators.iter().enumerate() {
        for (b, columns) in generators.iter().enumerate().filter(|(_, columns)| columns.len() == rows.len()) {
            let part: Vec<Vec<f64>> =
                rows.iter().map(|&r| columns.iter().map(|&c| map[r][c]).collect()).collect();
            matrix[a * blades + b] = determinant(&part);
        }
    }
    matrix
}

fn determinant(m: &[Vec<f64>]) -> f64 {
    match m {
        [] => 1.0,
        [first, rest @ ..] => (0..m.len())
            .map(|column| {
                let minor: Vec<Vec<f64>> = rest
                    .iter()
                    .map(|row| {
                        row.iter().enumerate().filter(|(at, _)| *at != column).map(|(_, v)| *v).collect()
                    })
                    .collect();
                (if column.is_multiple_of(2) { 1.0 } else { -1.0 }) * first[column] * determinant(&minor)
            })
            .sum(),
    }
}

/// All signed permutations of the axes that keep the metric.
fn signed_permutations(metric: &OrderedMetric) -> Vec<Vec<Vec<f64>>> {
    let n = metric.dimension();
    let mut permutations: Vec<Vec<usize>> = vec![vec![]];
    for _ in 0..n {
        permutations = permutations
            .iter()
            .flat_map(|p| {
                (0..n).filter(|a| !p.contains(a)).map(|a| [&p[..], &[a]].concat()).collect::<Vec<_>>()
            })
            .collect();
    }
    permutations.retain(|p| (0..n).all(|a| metric.squares()[p[a]] == metric.squares()[a]));
    let maps = permutations.iter().flat_map(|p| {
        (0..1usize << n).map(move |signs| {
            let mut map = vec![vec![0.0; n]; n];
            (0..n).for_each(|a| map[p[a]][a] = if signs >> a & 1 == 1 { -1.0 } else { 1.0 });
            map
        })
    });
    maps.collect()
}

/// (T·f)(y) = ρ(T) f(T⁻¹y), about the centre of a cubic grid.
fn moved(metric: &OrderedMetric, map: &[Vec<f64>], x: &Tensor) -> Tensor {
    let n = metric.dimension();
    let turned = on_blades(&minors(metric, map), x);
    // Axis b of the result is the axis of f that the map takes to b, in reverse if with a minus.
    let source: Vec<usize> = (0..n).map(|b| (0..n).find(|&a| map[b][a] != 0.0).unwrap()).collect();
    let axes: Vec<usize> = [0, 1].into_iter().chain(source.iter().map(|a| a + 2)).chain([n + 2]).collect();
    let turned = turned.permute(&axes).unwrap();
    (0..n).fold(turned, |x, b| {
        if map[b][source[b]] > 0.0 {
            return x;
        }
        let size = x.shape()[b + 2];
        let back: Vec<usize> = (0..size).rev().collect();
        x.index_select(b + 2, &Index::new(&back, size, &CPU).unwrap()).unwrap()
    })
}

#[test]
fn steerable_convolutions_commute_with_the_symmetries_of_the_grid() {
    for (text, count) in [("1,1", 8), ("1,-1", 4), ("1,1,1", 48), ("-1,1,1", 16)] {
        let metric = metric(text);
        let n = metric.dimension();
        let worst = |size: usize, extent: usize, stride: usize, padding| {
            let kernel = random_kernel(&metric, size, [2, 2, 3], 11);
            let x = random(&[&[metric.blade_count(), 1], &vec![extent; n][..], &[2]].concat(), 5);
            let bias = random(&[2, 1], 6);
            let f = |x: &Tensor| fields::cs_conv(&metric, x, &kernel, Some(&bias), stride, padding).unwrap();
            let y = f(&x);
            let maps = signed_permutations(&metric);
            assert_eq!(maps.len(), count, "{text}");
            maps.iter()
                .map(|map| difference(&f(&moved(&metric, map, &x)), &moved(&metric, map, &y)))
                .fold(0.0, f64::max)
        };
        let same = SteerablePadding::Same;
        assert!(worst(3, 5, 1, same) < 1e-12, "{text}");
        if n == 2 {
            assert!(worst(5, 5, 1, SteerablePadding::Filled(Padding::Symmetric)) < 1e-12, "{text}");
            assert!(worst(3, 5, 2, same) < 1e-12, "{text}: an odd grid");
            // A kernel without a centre, and padding that is not symmetric, are no symmetric maps.
            assert!(worst(4, 5, 1, same) > 0.1, "{text}: even kernels");
            assert!(worst(3, 6, 2, same) > 0.1, "{text}: an even grid in strides of 2");
        }
    }
}

/// A random isometry of the metric: a product of reflections x ↦ x − 2(x·v)v/(v·v) in vectors off the light cone.
fn isometry(metric: &OrderedMetric, seed: u64) -> Vec<Vec<f64>> {
    let n = metric.dimension();
    let g: Vec<f64> = metric.squares().iter().map(|&g| f64::from(g)).collect();
    let mut map: Vec<Vec<f64>> =
        (0..n).map(|a| (0..n).map(|b| f64::from(u8::from(a == b))).collect()).collect();
    for at in 0..2 + seed % 2 {
        let mut v = random(&[n], 100 * seed + at).to_vec::<f64>().unwrap();
        v[0] += 3.0;
        let q: f64 = v.iter().zip(&g).map(|(v, g)| v * v * g).sum();
        map = (0..n)
            .map(|a| {
                (0..n)
                    .map(|b| {
                        map[a][b] - 2.0 * v[a] / q * (0..n).map(|c| v[c] * g[c] * map[c][b]).sum::<f64>()
                    })
                    .collect()
            })
            .collect();
    }
    map
}

#[test]
fn steerable_kernels_norms_and_gates_commute_with_every_isometry() {
    for text in ["1,1", "1,-1", "1,1,1", "-1,1,1"] {
        let metric = metric(text);
        let (n, blades) = (metric.dimension(), metric.blade_count());
        let kernel = random_kernel(&metric, 3, [2, 2, 3], 21);
        let points: Vec<Vec<f64>> =
            (0..20).map(|at| random(&[n], 300 + at).to_vec::<f64>().unwrap()).collect();
        let k = fields::cs_kernel_at(&metric, &kernel, &points).unwrap();
        let x = random(&[blades, 2, 3, 4], 8);
        for seed in 0..10 {
            let map = isometry(&metric, seed);
            let rho = minors(&metric, &map);
            let turned: Vec<Vec<f64>> = points
                .iter()
                .map(|v| map.iter().map(|row| row.iter().zip(v).map(|(m, v)| m * v).sum()).collect())
                .collect();
            // K(Tv)·ρ(T) = ρ(T)·K(v), on [J, out, I, points, in].
            let there = fields::cs_kernel_at(&metric, &kernel, &turned).unwrap();
            let transposed: Vec<f64> =
                (0..blades * blades).map(|at| rho[at % blades * blades + at / blades]).collect();
            let right =
                on_blades(&transposed, &there.permute(&[2, 0, 1, 3, 4]).unwrap().contiguous().unwrap());
            let right = right.permute(&[1, 2, 0, 3, 4]).unwrap();
            assert!(difference(&right, &on_blades(&rho, &k)) < 1e-11, "{text}");
            type Pointwise<'a> = Box<dyn Fn(&Tensor) -> Tensor + 'a>;
            let factor = random(&[1, 4, n + 1], 9);
            let maps: [Pointwise<'_>; 3] = [
                Box::new(|x| fields::cs_layer_norm(&metric, x).unwrap()),
                Box::new(|x| fields::cs_mv_gelu(x).unwrap()),
                Box::new(|x| fields::cs_grade_norm(&metric, x, &factor).unwrap()),
            ];
            for f in &maps {
                assert!(difference(&f(&on_blades(&rho, &x)), &on_blades(&rho, &f(&x))) < 1e-12, "{text}");
            }
        }
    }
}

#[test]
fn correct_whitening_gives_unit_covariance_and_the_published_one_does_not() {
    let mixed = on_blades(&random(&[16], 1).to_vec::<f64>().unwrap(), &random(&[4, 3, 8, 8, 2], 2));
    let spread = |whitening| {
        // Nearly no ridge: what is left of the covariance is the whitening's alone.
        let options = NormOptions { whitening, epsilon: 1e-12 };
        let y = fields::clifford_batch_norm(&mixed, BatchNorm::default(), None, options).unwrap().0;
        // Statistics of what was normalised.
        let (_, statistics) = fields::clifford_batch_norm(&y, BatchNorm::default(), None, options).unwrap();
        let mean = statistics.mean.to_vec::<f64>().unwrap().iter().fold(0.0f64, |most, v| most.max(v.abs()));
        assert!(mean < 1e-10);
        let covariance = statistics.covariance.to_vec::<f64>().unwrap();
        let identity = |at: usize| f64::from(u8::from(at / 2 % 4 == at / 8));
        covariance.iter().enumerate().map(|(at, v)| (v - identity(at)).abs()).fold(0.0, f64::max)
    };
    assert!(spread(Whitening::Lower) < 1e-6, "{:.1e}", spread(Whitening::Lower));
    assert!(spread(Whitening::Reference) > 0.1, "{:.1e}", spread(Whitening::Reference));
}

#[test]
fn normalised_vectors_turn_with_the_field() {
    let metric = metric("1,1,1");
    let x = random(&[3, 2, 4, 4, 4], 1);
    let (weight, bias) = (random(&[4], 2), Tensor::zeros([4, 3], DType::F64, &CPU).unwrap());
    for seed in 0..5 {
        let map: Vec<f64> = isometry(&metric, seed).concat();
        let f = |x: &Tensor| fields::g3_group_norm(x, &weight, &bias, 2, Some(0.0)).unwrap();
        assert!(difference(&f(&on_blades(&map, &x)), &on_blades(&map, &f(&x))) < 1e-12);
    }
}

#[test]
fn algebras_as_matrices_give_the_same_convolution() {
    // With eight channels, convolutions go by the matrices of the algebra; `correlate` with the kernel between blades does not.
    for text in ["1", "1,1", "1,-1", "1,1,1", "-1,1,1", "-1,-1,-1", "1,0,1"] {
        let metric = metric(text);
        let (n, blades) = (metric.dimension(), metric.blade_count());
        let x = random(&[&[blades, 2], &[5, 4, 3][..n], &[8]].concat(), 1).requires_grad();
        let w = random(&[&[blades, 9, 8], &vec![2; n][..]].concat(), 2).requires_grad();
        let mut options = ConvolutionOptions::new(n).same(&vec![2; n]);
        options.stride[0] = 2;
        let fast = fields::clifford_conv(&metric, &x, &w, None, &options).unwrap();
        let slow = fields::correlate(&x, &fields::clifford_kernel(&metric, &w).unwrap(), &options).unwrap();
        assert!(difference(&fast, &slow) < 1e-14, "{text}");
        let cotangent = random(fast.shape(), 3);
        let gradients = |y: &Tensor| y.mul(&cotangent).unwrap().sum_all().unwrap().backward().unwrap();
        let (fast, slow) = (gradients(&fast), gradients(&slow));
        for leaf in [&x, &w] {
            assert!(difference(fast.get(leaf).unwrap(), slow.get(leaf).unwrap()) < 1e-14, "{text}");
        }
        let w = random(&[&[blades, 8, 9], &vec![2; n][..]].concat(), 4);
        let kernel = fields::clifford_kernel_transposed(&metric, &w).unwrap();
        let zero = vec![0; n];
        let fast = fields::clifford_conv_transpose(&metric, &x, &w, None, &options, &zero).unwrap();
        let slow = fields::correlate_transposed(&x, &kernel, &options, &zero).unwrap();
        assert!(difference(&fast, &slow) < 1e-14, "{text}");
    }
}
