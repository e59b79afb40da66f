//! Operations run by somebody who keeps the history: over the registry, with the numbers of the history kept here.

use gradewise_autograd::{
    AnySample, Attributes, BackwardOptions, Error, Kept, Prepared, Sizes, Tensor, clifford, grad,
    registry::entries,
};
use gradewise_kernels::{Array, DType, Device};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

fn bits(array: Option<&Array>) -> Option<Vec<u64>> {
    array.map(|array| array.to_f64_vec().unwrap().into_iter().map(f64::to_bits).collect())
}

fn for_every_sample(dtype: DType, mut check: impl FnMut(&AnySample, &Prepared, &[Array], &mut ChaCha8Rng)) {
    let mut rng = ChaCha8Rng::seed_from_u64(23);
    for signature in ["3,0,0", "1,3,0", "2,0,1"] {
        let sizes = Sizes::new(signature.parse().unwrap(), 3, 5).unwrap();
        for entry in entries() {
            for sample in entry.samples(&sizes).unwrap() {
                let attributes: Attributes = sample.attributes().unwrap().to_json().parse().unwrap();
                let prepared = Prepared::new(entry.name(), &attributes).unwrap();
                let inputs: Vec<Array> = sample
                    .draw(dtype, &mut rng)
                    .unwrap()
                    .into_iter()
                    .map(|input| input.cast(dtype).unwrap())
                    .collect();
                check(&sample, &prepared, &inputs, &mut rng);
            }
        }
    }
}

fn leaves(inputs: &[Array]) -> Vec<Tensor> {
    inputs.iter().map(|input| Tensor::new(input.clone()).requires_grad()).collect()
}

fn like(array: &Array, rng: &mut ChaCha8Rng) -> Array {
    Array::randn(array.shape(), array.dtype(), &Device::Cpu, rng).unwrap()
}

#[test]
fn outputs_and_gradients_have_the_bits_of_the_history_kept_here() {
    for dtype in [DType::F64, DType::F32, DType::BF16] {
        for_every_sample(dtype, |sample, prepared, inputs, rng| {
            let tensors = leaves(inputs);
            let expected = sample.run(&tensors).unwrap();
            let Kept { output, saved } = prepared.forward(inputs).unwrap();
            assert_eq!(bits(Some(&output)), bits(Some(expected.array())), "{sample}");
            let direction = like(&output.cast(DType::F64).unwrap(), rng).cast(output.dtype()).unwrap();
            let options = BackwardOptions::seed(Tensor::new(direction.clone()));
            let slopes = grad(&expected, &tensors.iter().collect::<Vec<_>>(), &options).unwrap();
            let slopes: Vec<_> = slopes.iter().map(|slope| bits(slope.as_ref().map(Tensor::array))).collect();
            // With and without what the forward pass saved, all of them and one at a time.
            for saved in [saved, None] {
                let needs = vec![true; inputs.len()];
                let all = prepared.backward(inputs, &output, saved, &direction, &needs).unwrap();
                assert_eq!(all.iter().map(|g| bits(g.as_ref())).collect::<Vec<_>>(), slopes, "{sample}");
            }
            for (index, slope) in slopes.iter().enumerate() {
                let needs: Vec<bool> = (0..inputs.len()).map(|other| other == index).collect();
                let one = prepared.backward(inputs, &output, None, &direction, &needs).unwrap();
                for (other, gradient) in one.iter().enumerate() {
                    assert_eq!(gradient.is_some(), other == index && slope.is_some(), "{sample}");
                }
            }
        });
    }
}

/// Differences of gradients in double precision, relative to their size.
fn deviation(a: Option<&Array>, b: Option<&Array>) -> f64 {
    let (a, b) = (a.map(|a| a.to_f64_vec().unwrap()), b.map(|b| b.to_f64_vec().unwrap()));
    let length = a.as_ref().or(b.as_ref()).map_or(0, Vec::len);
    let [a, b] = [a, b].map(|values| values.unwrap_or_else(|| vec![0.0; length]));
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    norm(&mut a.iter().zip(&b).map(|(a, b)| a - b)) / (1.0 + norm(&mut b.iter().copied()))
}

#[test]
fn gradients_of_gradients_are_those_of_the_recorded_graph() {
    let mut checked = 0;
    for_every_sample(DType::F64, |sample, prepared, inputs, rng| {
        let tensors = leaves(inputs);
        let output = sample.run(&tensors).unwrap();
        if output.dtype() != DType::F64 {
            return;
        }
        let seed = Tensor::new(like(output.array(), rng)).requires_grad();
        let options = BackwardOptions { seed: Some(seed.clone()), create_graph: true };
        let all: Vec<&Tensor> = tensors.iter().collect();
        let slopes = grad(&output, &all, &options).unwrap();
        let cotangents: Vec<Option<Array>> =
            slopes.iter().map(|slope| slope.as_ref().map(|slope| like(slope.array(), rng))).collect();
        let needs = vec![true; inputs.len()];
        let (of_inputs, of_seed) =
            prepared.backward_twice(inputs, seed.array(), &cotangents, &needs, true).unwrap();
        let terms = slopes.iter().zip(&cotangents).filter_map(|(slope, cotangent)| {
            let slope = slope.as_ref().filter(|slope| slope.is_grad_required())?;
            Some(slope.mul(&Tensor::new(cotangent.clone()?)).unwrap().sum_all().unwrap())
        });
        let Some(total) = terms.reduce(|sum, term| sum.add(&term).unwrap()) else {
            assert!(of_inputs.iter().all(Option::is_none) && of_seed.is_none(), "{sample}");
            return;
        };
        let asked: Vec<&Tensor> = tensors.iter().chain([&seed]).collect();
        let expected = grad(&total, &asked, &BackwardOptions::default()).unwrap();
        for (actual, expected) in of_inputs.iter().chain([&of_seed]).zip(&expected) {
            let deviation = deviation(actual.as_ref(), expected.as_ref().map(Tensor::array));
            assert!(deviation < 1e-10, "{sample}: {deviation}");
        }
        checked += 1;
    });
    assert!(checked > 200, "{checked} samples");
}

#[test]
fn products_of_an_algebra_can_be_named() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let algebra = gradewise_core::Algebra::new("1,3,0".parse().unwrap()).unwrap();
    let [x, y] = [0, 1].map(|_| Array::randn([16, 3, 2], DType::F64, &Device::Cpu, &mut rng).unwrap());
    let [left, right] = [&x, &y].map(|array| Tensor::new(array.clone()));
    type Product = fn(&gradewise_core::Algebra, &Tensor, &Tensor) -> gradewise_autograd::Result<Tensor>;
    let products: [(&str, Product); 2] =
        [("geometric", clifford::geometric_product), ("regressive", clifford::regressive_product)];
    for (name, product) in products {
        let attributes = format!(r#"{{"product":"{name}","algebra":"1,3,0"}}"#).parse().unwrap();
        let prepared = Prepared::new("table_product", &attributes).unwrap();
        let expected = product(&algebra, &left, &right).unwrap();
        let output = prepared.forward(&[x.clone(), y.clone()]).unwrap().output;
        assert_eq!(bits(Some(&output)), bits(Some(expected.array())), "{name}");
    }
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let error = Prepared::new("cube", &Attributes::default()).unwrap_err().to_string();
    assert!(error.contains("cube") && error.contains("mv_linear"), "{error}");
    let error = Prepared::new("sgp", &"{}".parse().unwrap()).unwrap_err();
    assert!(matches!(&error, Error::Argument { operation: "sgp", .. }), "{error}");
    let add = Prepared::new("add", &Attributes::default()).unwrap();
    let x = Array::ones([3], DType::F64, &Device::Cpu).unwrap();
    let [output, grad] = [3, 4].map(|size| Array::ones([size], DType::F64, &Device::Cpu).unwrap());
    let pair = [x.clone(), x.clone()];
    assert!(add.forward(&pair[..1]).is_err());
    for (grad, needs) in [(&grad, &[true, true][..]), (&output, &[true])] {
        let error = add.backward(&pair, &output, None, grad, needs).unwrap_err().to_string();
        assert!(error.starts_with("add:"), "{error}");
    }
}
