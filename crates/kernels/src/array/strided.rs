//! Strided views as kernels take them, see csrc/gradewise/strided.cuh: axes innermost first.

use super::{Array, layout::collapse};
use crate::{
    CudaDevice, Result,
    runtime::cuda::{Args, Grid, Kernel, fuse::Description},
};
use gradewise_core::PerAxis;

/// The most axes, after merging, that a kernel walks.
pub(crate) const AXES: usize = 8;

/// A `Divisor`: a size, and how positions below 2³¹ are divided by it.
pub(crate) fn divisor(size: usize) -> [u64; 2] {
    let magic = if (1..1 << 31).contains(&size) {
        let (size, shift) = (size as u64, u64::from(size.next_power_of_two().trailing_zeros()));
        let multiplier = (((1u64 << shift) - size) << 32) / size + 1;
        shift << 32 | multiplier
    } else {
        0
    };
    [size as u64, magic]
}

/// `Axes`, from sizes outermost first, of which there are at most [`AXES`].
pub(crate) fn axes(sizes: &[usize]) -> [u64; 1 + 2 * AXES] {
    debug_assert!(sizes.len() <= AXES);
    let mut words = [0; 1 + 2 * AXES];
    words[0] = sizes.len() as u64;
    for (words, &size) in words[1..].chunks_exact_mut(2).zip(sizes.iter().rev()) {
        words.copy_from_slice(&divisor(size));
    }
    words
}

/// `Strides`, from strides outermost first.
pub(crate) fn strides(strides: &[usize]) -> [u64; AXES] {
    let mut words = [0; AXES];
    for (word, &stride) in words.iter_mut().zip(strides.iter().rev()) {
        *word = stride as u64;
    }
    words
}

/// A `View`: the address of the first element, and strides.
pub(crate) fn view(address: u64, steps: &[usize]) -> [u64; 1 + AXES] {
    let mut words = [0; 1 + AXES];
    words[0] = address;
    words[1..].copy_from_slice(&strides(steps));
    words
}

/// Launches an elementwise kernel (csrc/gradewise/elementwise.cuh): `out`, contiguous, is a function of the elements of
/// `inputs` at the same positions; they have its shape and one dtype. `more` adds the parameters after the views; `describe` says what the
/// kernel computes, if `out` is new.
///
/// # Safety
/// `kernel` is an elementwise kernel of `N` views, of the dtypes of `out` and of the inputs, and takes what `more` adds. The inputs have the
/// shape of `out` and are on its device; `out` is contiguous and the caller's to write. It may be one of the inputs, contiguous as it is.
pub(crate) unsafe fn elementwise<const N: usize>(
    device: &CudaDevice,
    operation: &'static str,
    kernel: Kernel,
    out: &Array,
    inputs: [&Array; N],
    more: impl FnOnce(Args) -> Args,
    describe: impl FnOnce() -> Option<Description>,
) -> Result<()> {
    let elements = out.elements();
    if elements == 0 {
        return Ok(());
    }
    let (sizes, steps) = collapse(out.dims(), inputs.map(Array::strides));
    if sizes.len() > AXES {
        let copies = inputs.iter().map(|input| input.contiguous()).collect::<Result<Vec<_>>>()?;
        let copies: [&Array; N] = std::array::from_fn(|index| &copies[index]);
        // SAFETY: as for this function, with copies of the inputs.
        return unsafe { elementwise(device, operation, kernel, out, copies, more, describe) };
    }
    let together = together(out, &sizes, &inputs, &steps);
    let mut args = Args::new().array(out).size(elements).int(together as i32).value(&axes(&sizes));
    for (input, steps) in inputs.iter().zip(&steps) {
        args = args.value(&view(input.cuda_address(), steps));
    }
    // Each thread does a pack, or as many elements one by one.
    let grid = Grid::linear(elements.div_ceil(pack(&inputs)));
    // SAFETY: 1: the shape of `out` is that of the inputs, whose strides the views carry; as the caller vouches, this is an elementwise
    // kernel of so many inputs and these dtypes. 2: the caller may write to `out`. 3: elementwise kernels stride over a linear grid. 4: the
    // inputs are borrowed.
    unsafe { device.launch_value(operation, kernel, grid, more(args), describe) }
}

/// Elements that a thread works on at once: 16 bytes of them.
fn pack(inputs: &[&Array]) -> usize {
    inputs.iter().map(|input| 16 / input.dtype().size()).min().unwrap_or(4)
}

/// How many neighbours can be accessed together, as the kernel requires it: a pack, or half of one of eight; 0 if neither.
fn together(out: &Array, sizes: &[usize], inputs: &[&Array], steps: &[PerAxis]) -> usize {
    let pack = pack(inputs);
    let fits = |&width: &usize| {
        let aligned =
            |array: &Array| array.cuda_address().is_multiple_of((width * array.dtype().size()) as u64);
        let input = |(input, steps): (&&Array, &PerAxis)| match steps.split_last() {
            None | Some((0, _)) => true,
            Some((1, outer)) => aligned(input) && outer.iter().all(|step| step % width == 0),
            Some(_) => false,
        };
        let whole = match sizes {
            [] => false,
            [_] => true,
            [.., innermost] => innermost % width == 0,
        };
        whole && aligned(out) && inputs.iter().zip(steps).all(input)
    };
    [pack, pack.max(8) / 2].into_iter().filter(|&width| width <= pack).find(fits).unwrap_or(0)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The names of a list of functions or of an enumeration in a file of csrc, without their `k`.
    pub(crate) fn numbers(file: &str, list: &str) -> Vec<String> {
        let path = gradewise_testing::manifest_dir!().join("../../csrc").join(file);
        let source = std::fs::read_to_string(path).unwrap();
        let begin = [format!("#define {list}(M)"), format!("enum {list} : i32 {{")];
        let rest = begin.iter().find_map(|begin| source.split_once(begin)).unwrap().1;
        let text = rest.split_once('}').map_or(rest, |(text, _)| text);
        let text = text.split_once("\n\n").map_or(text, |(text, _)| text);
        let names = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|name| name.len() > 1);
        names.map(|name| name.strip_prefix('k').unwrap().to_owned()).collect()
    }

    /// What the kernel computes.
    fn divide(n: u32, [_, magic]: [u64; 2]) -> u32 {
        let high = (u64::from(n) * (magic & 0xffff_ffff)) >> 32;
        (high as u32).wrapping_add(n) >> (magic >> 32)
    }

    proptest! {
        #[test]
        fn multiplications_divide(n in 0u32..1 << 31, size in 1usize..1 << 31, small in 1usize..100) {
            for size in [size, small, size.next_power_of_two().min(1 << 30)] {
                prop_assert_eq!(divide(n, divisor(size)), n / size as u32, "{} / {}", n, size);
                let multiple = n - n % size as u32;
                prop_assert_eq!(divide(multiple, divisor(size)), multiple / size as u32);
                if multiple > 0 {
                    prop_assert_eq!(divide(multiple - 1, divisor(size)), (multiple - 1) / size as u32);
                }
            }
        }
    }

    #[test]
    fn the_innermost_axis_comes_first() {
        let words = axes(&[5, 3]);
        assert_eq!((words[0], words[1], words[3], words[5]), (2, 3, 5, 0));
        assert_eq!(strides(&[30, 10])[..3], [10, 30, 0]);
        assert_eq!(view(64, &[7])[..3], [64, 7, 0]);
    }
}
