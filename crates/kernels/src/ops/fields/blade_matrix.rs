//! A constant matrix on the blades of a field: a change of basis, in one pass over memory.
//!
//! y_j = Σ_i M_ji x_i + b_j, for a field x `[I, …, channels]` and a bias b `[I, channels]` of 2, 4 or 8 blades I.

use crate::ops::clifford::algebra::contract::{alike, exact, with_real};
use crate::{
    Array, CudaDevice, DType, Device, Error, Result,
    cpu::{parallel::Flushed, simd::Real, split},
    runtime::cuda::{Args, Grid, Kernel},
};
use gradewise_core::{Error as CoreError, Shape};
use rayon::prelude::*;

const NAME: &str = "blade_matrix";
/// The most blades of a field: its metric has at most three generators.
const MOST: usize = 8;
/// Elements of each blade that are worked on at a time, which stay in the first-level cache.
const CHUNK: usize = 1024;

/// The field with the matrix `[I, I]`, by rows, on the blades of `x` `[I, …, channels]`, plus the bias `[I, channels]` if there is one.
///
/// # Errors
/// Another number of blades than 2, 4 or 8; a matrix or a bias that does not fit them; different dtypes or devices; dtypes that the
/// device does not serve.
pub fn blade_matrix(matrix: &[f64], x: &Array, bias: Option<&Array>) -> Result<Array> {
    let (Some(&blades), Some(&channels)) = (x.dims().first(), x.dims().last().filter(|_| x.rank() > 1))
    else {
        return Err(shape(x));
    };
    if ![2, 4, MOST].contains(&blades) {
        return Err(shape(x));
    }
    if matrix.len() != blades * blades {
        let (actual, expected) =
            (format!("{} entries for {blades} blades", matrix.len()), "a square matrix on the blades of `x`");
        return Err(Error::Argument { operation: NAME, argument: "matrix", actual, expected });
    }
    let dtype = match bias {
        Some(bias) => alike(NAME, &[("x", x), ("bias", bias)])?,
        None => alike(NAME, &[("x", x)])?,
    };
    if let Some(bias) = bias {
        let expected = Shape::from([blades, channels]);
        exact(NAME, "bias", bias, &expected, || "one entry for each blade and channel of `x`".to_owned())?;
    }
    let (x, bias) = (x.contiguous()?, bias.map(Array::contiguous).transpose()?);
    if let Device::Cuda(device) = x.device() {
        return launch(&device, matrix, &x, bias.as_ref(), [blades, channels]);
    }
    with_real!(dtype, NAME, T => {
        let values = x.as_slice::<T>()?;
        let bias = bias.as_ref().map(|bias| bias.as_slice::<T>()).transpose()?;
        Array::build::<T>(x.shape(), &Device::Cpu, |out| host(matrix, values, bias, [blades, channels], out))
    })
}

fn shape(x: &Array) -> Error {
    CoreError::Shape {
        operation: NAME,
        argument: "x",
        actual: x.shape().clone(),
        expected: "[2, 4 or 8 blades, …, channels]".to_owned(),
        reason: "the metric of a field has one to three generators".to_owned(),
    }
    .into()
}

fn host<T: Real>(matrix: &[f64], x: &[T], bias: Option<&[T]>, [blades, channels]: [usize; 2], out: &mut [T]) {
    let plane = x.len() / blades;
    if plane == 0 {
        return;
    }
    // Whole rows of channels, so that the bias of a chunk begins at channel 0.
    let chunk = (CHUNK / channels).max(1) * channels;
    split::planes(blades, chunk, out).into_par_iter().flushed_for_each(|(start, mut rows)| {
        for (j, out) in rows.iter_mut().enumerate() {
            match bias {
                Some(bias) => out
                    .chunks_mut(channels)
                    .for_each(|row| row.copy_from_slice(&bias[j * channels..][..row.len()])),
                None => out.fill(T::zero()),
            }
            for (i, &entry) in matrix[j * blades..][..blades].iter().enumerate() {
                let (entry, from) = (T::narrow(entry), &x[i * plane + start..][..out.len()]);
                if entry != T::zero() {
                    out.iter_mut().zip(from).for_each(|(out, &value)| *out += entry * value);
                }
            }
        }
    });
}

fn launch(
    device: &CudaDevice,
    matrix: &[f64],
    x: &Array,
    bias: Option<&Array>,
    [blades, channels]: [usize; 2],
) -> Result<Array> {
    let (dtype, plane) = (x.dtype(), x.elements() / blades);
    let out = Array::for_kernel(NAME, x.shape(), dtype, device)?;
    if plane == 0 {
        return Ok(out);
    }
    let wide = 16 / dtype.size();
    let arrays = [Some(x), Some(&out), bias];
    let packed = channels.is_multiple_of(wide)
        && arrays.into_iter().flatten().all(|array| array.cuda_address().is_multiple_of(16));
    let names = match packed {
        true => ["blade_matrix_2", "blade_matrix_4", "blade_matrix_8"],
        false => ["blade_matrix_single_2", "blade_matrix_single_4", "blade_matrix_single_8"],
    };
    let kernel = Kernel::new(names[blades.ilog2() as usize - 1], dtype);
    let args = Args::new().array(x).optional(bias).array(&out);
    let args = args.size(plane).size(channels);
    let grid = Grid::linear(if packed { plane / wide } else { plane });
    // As the kernels take it: by rows, filled up with zeros.
    let mut entries = [0.0; MOST * MOST];
    entries[..matrix.len()].copy_from_slice(matrix);
    let args = match dtype {
        DType::F64 => args.value(&entries),
        _ => args.value(&entries.map(|entry| entry as f32)),
    };
    // SAFETY: 1: x is contiguous, `blades` planes; the bias was checked to be `[blades, channels]`, and the matrix to be square on the
    // blades that the kernel is for. 2: `out` is new. 3: linear, a thread for a position or a pack of 16 bytes.
    unsafe { device.launch(NAME, kernel, grid, args)? };
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::blade_matrix;
    use crate::{Array, DType, Device, ops};
    use rand::SeedableRng;

    #[test]
    fn it_is_the_product_by_the_matrix() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
        for (blades, space, channels) in [(2, 1, 1), (4, 700, 3), (8, 130, 16), (4, 3, 2000), (2, 0, 5)] {
            let randn = |shape: &[usize], rng: &mut rand_chacha::ChaCha8Rng| {
                Array::randn(shape, DType::F64, &Device::Cpu, rng).unwrap()
            };
            let matrix = randn(&[blades, blades], &mut rng);
            let (x, bias) =
                (randn(&[blades, space, channels], &mut rng), randn(&[blades, channels], &mut rng));
            let entries = matrix.to_f64_vec().unwrap();
            let expected =
                ops::matmul(&matrix, &x.reshape([blades, space * channels]).unwrap(), false, false);
            let expected = expected.unwrap().reshape([blades, space, channels]).unwrap();
            let plain = blade_matrix(&entries, &x, None).unwrap();
            let with_bias = blade_matrix(&entries, &x, Some(&bias)).unwrap();
            let shifted = ops::add(&expected, &bias.reshape([blades, 1, channels]).unwrap()).unwrap();
            for (actual, expected) in [(plain, expected), (with_bias, shifted)] {
                let error = if space == 0 { 0.0 } else { actual.relative_error(&expected).unwrap() };
                assert!(error < 1e-15, "{blades} {space} {channels}: {error}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let zeros = |shape: &[usize]| Array::zeros(shape, DType::F32, &Device::Cpu).unwrap();
        let text = |result: crate::Result<Array>| result.unwrap_err().to_string();
        assert!(text(blade_matrix(&[1.0; 9], &zeros(&[3, 5, 2]), None)).contains("2, 4 or 8 blades"));
        assert!(text(blade_matrix(&[1.0; 9], &zeros(&[2, 5, 2]), None)).contains("9 entries for 2 blades"));
        let bias = zeros(&[2, 3]);
        assert!(
            text(blade_matrix(&[1.0; 4], &zeros(&[2, 5, 2]), Some(&bias))).contains("each blade and channel")
        );
    }
}
