//! Every public type that is data survives JSON, and what is no such value is refused.

use gradewise_core::{
    Algebra, Blade, Cl3, DType, Error, Motor3, Multivector, PerAxis, Rotor3, Shape, Signature,
};
use proptest::prelude::*;
use serde_json::{Value, from_str, from_value, json, to_string, to_value};

/// The value comes back from its JSON, which is `expected`.
#[track_caller]
fn round_trip<T>(value: &T, expected: Value)
where
    T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let written = to_value(value).expect("serializes");
    assert_eq!(written, expected);
    assert_eq!(&from_value::<T>(written).expect("deserializes"), value);
}

#[test]
fn values_are_readable() -> Result<(), Error> {
    round_trip(&Signature::STA, json!("Cl(1,3,0)"));
    round_trip(&Blade::E13, json!("e13"));
    round_trip(&Blade::SCALAR, json!("1"));
    round_trip(&DType::BF16, json!("bf16"));
    round_trip(&Cl3::default(), json!("Cl(3,0,0)"));
    round_trip(&Shape::from([2, 3]), json!([2, 3]));
    round_trip(&PerAxis::from(&[1, 2, 3, 4, 5][..]), json!([1, 2, 3, 4, 5]));
    let spacetime = Algebra::new(Signature::STA)?;
    round_trip(&spacetime, json!("Cl(1,3,0)"));
    round_trip(&spacetime.paths()[1], json!({"left": 0, "out": 1, "right": 1}));
    round_trip(&spacetime.terms()[1], json!({"left": 0, "right": 1, "out": 1, "path": 1, "sign": 1}));
    let plane = Algebra::new(Signature::CL2)?.parse::<i64>("1 - 2e12")?;
    round_trip(&plane, json!({"signature": "Cl(2,0,0)", "coefficients": [1, 0, 0, -2]}));
    round_trip(
        &Rotor3::<f64>::identity(),
        json!({"signature": "Cl(3,0,0)", "coefficients": [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]}),
    );
    Ok(())
}

proptest! {
    #[test]
    fn floats_keep_their_bits(c in prop::array::uniform8(prop::num::f64::NORMAL)) {
        let x = Multivector::<Cl3, f64>::from(c);
        prop_assert_eq!(from_str::<Multivector<Cl3, f64>>(&to_string(&x)?)?, x);
    }
}

#[track_caller]
fn assert_refused<T: serde::de::DeserializeOwned + std::fmt::Debug>(json: Value, why: &str) {
    let message = from_value::<T>(json).expect_err("refused").to_string();
    assert!(message.contains(why), "{message}");
}

#[test]
fn what_is_no_such_value_is_refused() {
    assert_refused::<Signature>(json!("Cl(3"), "not a signature");
    assert_refused::<Algebra>(json!("5,4,0"), "at most 8");
    assert_refused::<Cl3>(json!("2,0,0"), "not of Cl(3,0,0)");
    assert_refused::<Blade>(json!("e21"), "not a blade");
    assert_refused::<DType>(json!("f8"), "not a dtype");
    let short = json!({"signature": "3,0,0", "coefficients": [1.0]});
    assert_refused::<Multivector<Cl3, f64>>(short.clone(), "expected [8]");
    assert_refused::<Multivector<Algebra, f64>>(short, "expected [8]");
    let twice = json!({"signature": "3,0,0", "coefficients": [2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]});
    assert_refused::<Rotor3<f64>>(twice.clone(), "normalize");
    assert_refused::<Motor3<f64>>(twice, "not of Cl(3,0,1)");
}
