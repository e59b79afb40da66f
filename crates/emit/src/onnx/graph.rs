//! Nodes and constants of a graph, in the order in which they are made.

use super::proto::{Attribute, Node, Tensor, attribute_type, data_type};
use gradewise_core::DType;
use rustc_hash::FxHashMap;

/// The number of a type in ONNX; programs that reach this hold no others.
pub(super) fn element(dtype: DType) -> i32 {
    if dtype == DType::F64 { data_type::DOUBLE } else { data_type::FLOAT }
}

/// The graph so far. Equal constants are one, and so are equal nodes.
#[derive(Default)]
pub(super) struct Graph {
    pub nodes: Vec<Node>,
    pub constants: Vec<Tensor>,
    known_nodes: FxHashMap<String, String>,
    known_constants: FxHashMap<Vec<u8>, String>,
}

impl Graph {
    /// The result of an operator.
    pub fn node(&mut self, operator: &str, inputs: &[&str], attributes: Vec<Attribute>) -> String {
        let key = format!("{operator} {inputs:?} {attributes:?}");
        if let Some(known) = self.known_nodes.get(&key) {
            return known.clone();
        }
        let name = format!("{}_{}", operator.to_lowercase(), self.nodes.len());
        self.nodes.push(Node {
            input: inputs.iter().map(|&input| input.to_owned()).collect(),
            output: vec![name.clone()],
            name: name.clone(),
            op_type: operator.to_owned(),
            attribute: attributes,
        });
        self.known_nodes.insert(key, name.clone());
        name
    }

    /// A result of the graph: a node whose result has a name that is given.
    pub fn named(&mut self, operator: &str, input: &str, output: &str) {
        self.nodes.push(Node {
            input: vec![input.to_owned()],
            output: vec![output.to_owned()],
            name: output.to_owned(),
            op_type: operator.to_owned(),
            attribute: Vec::new(),
        });
    }

    fn constant(&mut self, kind: i32, dims: &[usize], raw_data: Vec<u8>) -> String {
        let mut key = format!("{kind} {dims:?} ").into_bytes();
        key.extend_from_slice(&raw_data);
        if let Some(known) = self.known_constants.get(&key) {
            return known.clone();
        }
        let name = format!("constant_{}", self.constants.len());
        let dims = dims.iter().map(|&size| size as i64).collect();
        self.constants.push(Tensor { dims, data_type: kind, name: name.clone(), raw_data });
        self.known_constants.insert(key, name.clone());
        name
    }

    /// Numbers.
    pub fn numbers(&mut self, dtype: DType, dims: &[usize], values: &[f64]) -> String {
        let raw_data = match dtype {
            DType::F64 => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            _ => values.iter().flat_map(|&value| (value as f32).to_le_bytes()).collect(),
        };
        self.constant(element(dtype), dims, raw_data)
    }

    /// A number that broadcasts to every shape.
    pub fn number(&mut self, dtype: DType, value: f64) -> String {
        self.numbers(dtype, &[], &[value])
    }

    /// A list of sizes, axes or positions.
    pub fn integers(&mut self, values: &[i64]) -> String {
        let raw_data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constant(data_type::INT64, &[values.len()], raw_data)
    }

    /// A list of positions.
    pub fn positions(&mut self, values: &[usize]) -> String {
        let values: Vec<i64> = values.iter().map(|&value| value as i64).collect();
        self.integers(&values)
    }

    /// A tensor in other sizes; its first axis stays.
    pub fn reshaped(&mut self, x: &str, sizes: &[usize]) -> String {
        // 0 stands for the size that the axis has.
        let shape: Vec<i64> = std::iter::once(0).chain(sizes.iter().map(|&size| size as i64)).collect();
        let shape = self.integers(&shape);
        self.node("Reshape", &[x, &shape], Vec::new())
    }

    /// The entries of the second axis at these positions.
    pub fn gathered(&mut self, x: &str, positions: &[usize]) -> String {
        let positions = self.positions(positions);
        self.node("Gather", &[x, &positions], vec![integer("axis", 1)])
    }
}

/// An attribute that is a number.
pub(super) fn integer(name: &str, value: i64) -> Attribute {
    Attribute { name: name.to_owned(), i: Some(value), s: None, kind: attribute_type::INT }
}

/// An attribute that is a text.
pub(super) fn text(name: &str, value: &str) -> Attribute {
    Attribute {
        name: name.to_owned(),
        i: None,
        s: Some(value.as_bytes().to_vec()),
        kind: attribute_type::STRING,
    }
}
