//! A network trained in candle has the losses of the same network trained in gradewise.

mod common;

use common::{
    Place,
    training::{agree, train},
};
use gradewise_kernels::DType;

#[test]
fn fifty_steps_in_candle_have_the_losses_of_fifty_steps_in_gradewise() {
    for dtype in [DType::F64, DType::F32] {
        agree(&train(dtype, &Place::CPU, &Place::CPU), dtype.name());
    }
}
