//! Every operation of the registry, as C.

mod common;
mod operations;

use common::{Case, agree};
use operations::{REFUSED, each};

#[test]
fn operations_give_their_own_numbers_in_c() {
    let mut cases = Vec::new();
    let refused = each(|about, program, draw| {
        let (inputs, expected) = draw(3);
        cases.push(Case { about, program, inputs, expected });
    });
    assert!(cases.len() > 200, "{}", cases.len());
    agree(&cases);
    assert_eq!(refused, REFUSED);
}
