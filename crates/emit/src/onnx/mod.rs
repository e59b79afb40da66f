//! Programs as graphs of ONNX.
//!
//! A buffer is a tensor `[batch, elements]`: the samples of a batch are computed side by side, although the program is that of one sample.
//! A nest of loops is arithmetic on tensors that have an axis for each loop behind that of the batch, of size 1 where nothing depends on
//! the loop's counter. What a nest reads and writes are gathers at constant positions, sums of products are `Einsum`.

mod graph;
mod proto;
mod translate;

use crate::{
    error::Result,
    file::{Source, check},
    nest::nests,
};
use gradewise_autograd::program::{Program, View};
use graph::element;
use prost::Message;
use proto::{Dimension, Model, OperatorSet, Shape, TensorType, Type, ValueInfo, data_type};
use translate::Translation;

/// The set of operators.
const OPSET: i64 = 18;
/// The version of the format that came with it.
const IR_VERSION: i64 = 8;
/// The name of the first axis, whose size is any.
const BATCH: &str = "batch";

/// The program as a model of ONNX: standard operators of opset 18.
///
/// Inputs and results have the names of their arguments and an axis more than in the program, in front: the samples of a batch, of which
/// there may be any number. A count is a number for each sample, of 64 bits.
///
/// # Errors
/// As [`c_source`](crate::c_source).
pub fn onnx_model(program: &Program, source: &Source<'_>) -> Result<Vec<u8>> {
    check(program, source)?;
    let mut translation = Translation::new(program, source);
    for nest in nests(program) {
        translation.nest(&nest)?;
    }
    for (view, argument) in program.outputs.iter().zip(source.outputs) {
        translation.output(view, &argument.name)?;
    }
    let described = |views: &[View], arguments: &[crate::Argument]| -> Vec<ValueInfo> {
        let both = views.iter().zip(arguments);
        both.map(|(view, argument)| {
            let kind = element(program.buffers[view.buffer].dtype);
            match argument.is_count {
                true => value(&argument.name, &argument.about, data_type::INT64, &[]),
                false => value(&argument.name, &argument.about, kind, &view.sizes),
            }
        })
        .collect()
    };
    let graph = translation.finish();
    let model = Model {
        ir_version: IR_VERSION,
        producer_name: PRODUCER.to_owned(),
        producer_version: env!("CARGO_PKG_VERSION").to_owned(),
        doc_string: source.about.join("\n"),
        graph: Some(proto::Graph {
            node: graph.nodes,
            name: source.name.to_owned(),
            initializer: graph.constants,
            input: described(&program.inputs, source.inputs),
            output: described(&program.outputs, source.outputs),
        }),
        opset_import: vec![OperatorSet { domain: String::new(), version: OPSET }],
    };
    Ok(model.encode_to_vec())
}

const PRODUCER: &str = "gradewise";

/// Whether a file is a model that [`onnx_model`] wrote.
pub fn is_onnx_model(bytes: &[u8]) -> bool {
    Model::decode(bytes).is_ok_and(|model| model.producer_name == PRODUCER && model.graph.is_some())
}

fn value(name: &str, about: &str, element: i32, sizes: &[usize]) -> ValueInfo {
    let batch = Dimension { value: None, parameter: Some(BATCH.to_owned()) };
    let sizes = sizes.iter().map(|&size| Dimension { value: Some(size as i64), parameter: None });
    let shape = Shape { dim: std::iter::once(batch).chain(sizes).collect() };
    ValueInfo {
        name: name.to_owned(),
        kind: Some(Type { tensor: Some(TensorType { element, shape: Some(shape) }) }),
        doc_string: about.to_owned(),
    }
}
