//! What `#[derive(Builder)]` writes, as a caller sees it.

use gradewise_derive::Builder;

/// What is built.
#[derive(Debug, PartialEq)]
pub struct Net(NetBuilder);

/// Settings of a [`Net`] from `inputs` to `outputs` features.
#[derive(Clone, PartialEq, Debug, Builder)]
pub struct NetBuilder {
    inputs: usize,
    #[builder(by_ref)]
    name: String,
    #[builder(by_ref)]
    outputs: Vec<usize>,
    /// The sizes of the hidden layers.
    #[builder(default = vec![inputs; outputs.len()], by_ref)]
    hidden: Vec<usize>,
    /// Whether there is a bias.
    #[builder(default = true)]
    bias: bool,
    /// The deviation of the weights.
    #[builder(default, strip_option)]
    deviation: Option<f64>,
    /// The blades of the bias.
    #[builder(default, strip_option, by_ref)]
    blades: Option<Vec<usize>>,
    /// The momentum; `None` for none.
    #[builder(default = Some(0.1))]
    momentum: Option<f64>,
    #[builder(default, skip)]
    range: (f64, f64),
}

impl NetBuilder {
    /// A setter of two values, written by hand.
    #[must_use]
    pub fn range(mut self, low: f64, high: f64) -> Self {
        self.range = (low, high);
        self
    }

    /// Builds it.
    pub fn init(self) -> Net {
        Net(self)
    }
}

#[test]
fn fields_without_a_default_are_arguments_and_the_others_have_theirs() {
    let Net(built) = Net::new(3, &"n".to_owned(), &[4, 5]).init();
    let expected = NetBuilder {
        inputs: 3,
        name: "n".to_owned(),
        outputs: vec![4, 5],
        hidden: vec![3, 3],
        bias: true,
        deviation: None,
        blades: None,
        momentum: Some(0.1),
        range: (0.0, 0.0),
    };
    assert_eq!(built, expected);
}

#[test]
fn each_setter_changes_its_field_alone() {
    let new = || Net::new(3, &String::new(), &[4]);
    let unchanged = new();
    assert_eq!(new().bias(false), NetBuilder { bias: false, ..unchanged.clone() });
    assert_eq!(new().hidden(&[7]), NetBuilder { hidden: vec![7], ..unchanged.clone() });
    assert_eq!(new().deviation(2.0), NetBuilder { deviation: Some(2.0), ..unchanged.clone() });
    assert_eq!(new().blades(&[1, 2]), NetBuilder { blades: Some(vec![1, 2]), ..unchanged.clone() });
    assert_eq!(new().momentum(None), NetBuilder { momentum: None, ..unchanged.clone() });
    assert_eq!(new().range(1.0, 2.0), NetBuilder { range: (1.0, 2.0), ..unchanged });
}
