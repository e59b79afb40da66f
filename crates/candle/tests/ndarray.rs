//! Arrays of `ndarray` as arrays and back, which takes a feature of gradewise-kernels; and from there to candle.

use gradewise_candle::Fused;
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::{Array, DType, Device, ops};
use ndarray::{Array2, ArrayD, IxDyn, arr2, s};

fn of(array: &Array) -> Vec<f64> {
    array.to_f64_vec().unwrap()
}

#[test]
fn views_show_every_layout_without_a_copy() {
    let a = Array::from_slice(&[1.0f64, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3], &Device::Cpu).unwrap();
    let layouts = [
        a.clone(),
        a.transpose(0, 1).unwrap(),
        a.slice(1, 1..3).unwrap(),
        a.slice(0, 1..2).unwrap().broadcast_to([4, 3]).unwrap(),
        a.slice(0, 2..2).unwrap(),
        a.slice(1, 3..3).unwrap().transpose(0, 1).unwrap(),
        a.reshape([6, 1, 1]).unwrap(),
    ];
    for layout in layouts {
        let view = layout.view_ndarray::<f64>().unwrap();
        assert_eq!(view.shape(), layout.dims());
        assert_eq!(view.iter().copied().collect::<Vec<_>>(), of(&layout));
        if layout.elements() > 0 {
            assert_eq!(view.as_ptr().addr() as u64, layout.address());
        }
        assert_eq!(layout.to_ndarray::<f64>().unwrap(), view);
    }
    let scalar = Array::full([0; 0], 7.0, DType::F32, &Device::Cpu).unwrap();
    assert_eq!(scalar.view_ndarray::<f32>().unwrap()[IxDyn(&[])], 7.0);
    let error = a.view_ndarray::<f32>().unwrap_err().to_string();
    assert!(error.contains("f64") && error.contains("f32"), "{error}");
}

#[test]
fn writing_through_a_view_changes_one_array_alone() {
    let mut a = Array::from_slice(&[1.0f32, 2.0, 3.0, 4.0], [2, 2], &Device::Cpu).unwrap();
    let other = a.clone();
    a.view_ndarray_mut::<f32>().unwrap()[[0, 1]] = 9.0;
    assert_eq!((of(&a), of(&other)), (vec![1.0, 9.0, 3.0, 4.0], vec![1.0, 2.0, 3.0, 4.0]));
    let before = a.address();
    a.view_ndarray_mut::<f32>().unwrap()[[1, 1]] = 8.0;
    assert_eq!((of(&a)[3], a.address()), (8.0, before), "nothing else shares it: no copy");
}

#[test]
fn arrays_of_ndarray_are_shared_and_stay_as_they_are() {
    let theirs = arr2(&[[1.0f64, 2.0, 3.0], [4.0, 5.0, 6.0]]).into_shared();
    let mut ours = Array::share_ndarray(theirs.clone()).unwrap();
    assert_eq!((ours.address(), ours.is_borrowed()), (theirs.as_ptr().addr() as u64, true));
    let turned = Array::share_ndarray(theirs.clone().reversed_axes()).unwrap();
    assert_eq!((turned.address(), of(&turned)), (ours.address(), vec![1.0, 4.0, 2.0, 5.0, 3.0, 6.0]));
    // Writing to either copies.
    ours.as_mut_slice::<f64>().unwrap()[0] = -1.0;
    let mut changed = theirs.clone();
    changed[[0, 0]] = 7.0;
    assert_eq!((theirs[[0, 0]], of(&turned)[0], of(&ours)[0]), (1.0, 1.0, -1.0));
    drop(theirs);
    assert_eq!(of(&turned)[5], 6.0, "the array keeps what it shows");

    let backwards = arr2(&[[1.0f32, 2.0], [3.0, 4.0]]);
    let view = backwards.slice(s![..;-1, ..]);
    // SAFETY: the array outlives what is made of its view, and is not written to.
    let array = unsafe { Array::borrow_ndarray(view) }.unwrap();
    assert_eq!((of(&array), array.is_borrowed()), (vec![3.0, 4.0, 1.0, 2.0], false));
    // SAFETY: as above.
    let column = unsafe { Array::borrow_ndarray(backwards.column(1)) }.unwrap();
    assert_eq!((of(&ops::square(&column).unwrap()), column.is_borrowed()), (vec![4.0, 16.0], true));
}

#[test]
fn vectors_change_hands() {
    let theirs = Array2::from_shape_fn((2, 3), |(row, column)| (3 * row + column) as f32);
    let start = theirs.as_ptr().addr() as u64;
    let ours = Array::from_ndarray(theirs.clone()).unwrap();
    assert_eq!(of(&ours), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(Array::from_ndarray(theirs.clone()).unwrap().dims(), [2, 3]);
    let moved = Array::from_ndarray(theirs).unwrap();
    assert_eq!(moved.address(), start);
    let wide = Array2::from_shape_fn((3, 2), |(row, column)| (2 * row + column) as f64);
    assert_eq!(of(&Array::from_ndarray(wide.clone().reversed_axes()).unwrap()), [0., 2., 4., 1., 3., 5.]);
    assert_eq!(of(&Array::from_ndarray(wide.slice_move(s![1.., ..])).unwrap()), [2., 3., 4., 5.]);
    assert_eq!(Array::from_ndarray(ArrayD::<f32>::zeros(IxDyn(&[2, 0]))).unwrap().dims(), [2, 0]);
}

#[test]
fn a_field_goes_from_ndarray_through_gradewise_and_candle() {
    let e1 = Array2::from_shape_fn((8, 1), |(blade, _)| f64::from(u8::from(blade == 1)));
    let ours = Array::share_ndarray(e1.into_shared()).unwrap();
    let tensor = candle_core::Tensor::from_slice(
        ours.as_slice::<f64>().unwrap(),
        (8, 1, 1),
        &candle_core::Device::Cpu,
    );
    let tensor = tensor.unwrap();
    let algebra = Algebra::new(Signature::CL3).unwrap();
    let square = Fused::geometric_product(&algebra).unwrap().apply(&[&tensor, &tensor]).unwrap();
    assert_eq!(square.flatten_all().unwrap().to_vec1::<f64>().unwrap(), [1., 0., 0., 0., 0., 0., 0., 0.]);
}
