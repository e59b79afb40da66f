//! Operations of the registry that have no kernels of their own.

/// An operation without kernels: its name, attributes, precision, names of inputs, samples, and the composition of other operations that it
/// is. Functions compose the primitives themselves, each a node of the graph; checks over the registry, records that are run again, and
/// front ends of other languages name the whole as one: there it is one node, whose re-expression is the composition.
macro_rules! composed {
    (
        $(#[$doc:meta])*
        $type:ident, $name:literal, $rule:ident, [$($operand:literal),+],
        |$sizes:ident| $samples:expr, |$inputs:ident| $body:expr
    ) => {
        $(#[$doc])*
        #[derive(serde::Serialize, serde::Deserialize)]
        pub(crate) struct $type {}

        impl $crate::Operation for $type {
            const NAME: &'static str = $name;
            const RULE: $crate::Rule = $crate::Rule::$rule;
            const DERIVATIVE: $crate::Derivative = $crate::Derivative::Reexpressed;
            const OPERANDS: &'static [$crate::Operand] = &[$($crate::Operand::array($operand)),+];

            fn samples($sizes: &$crate::Sizes) -> $crate::Result<Vec<$crate::Sample<Self>>> {
                let inputs: Vec<$crate::Input> = ($samples).into();
                // No inputs, where the sizes allow none.
                Ok(if inputs.is_empty() { Vec::new() } else { vec![$crate::Sample::new(Self {}, inputs)] })
            }

            fn serves(&self, _: &[gradewise_kernels::Array]) -> bool {
                false
            }

            fn forward(&self, inputs: &[gradewise_kernels::Array]) -> $crate::Result<$crate::Forward> {
                $crate::operation::reexpressed(|inputs| self.reexpress(inputs), inputs)
            }

            /// The engine differentiates the re-expression of what has no kernels.
            fn backward(
                &self,
                _: &$crate::BackwardContext<'_>,
                _: &$crate::Tensor,
            ) -> $crate::Result<Vec<Option<$crate::Tensor>>> {
                Err($crate::Error::Argument {
                    operation: $name,
                    message: "it is differentiated by its re-expression".to_owned(),
                })
            }

            fn reexpress(&self, $inputs: &[$crate::Tensor]) -> $crate::Result<$crate::Tensor> {
                $body
            }
        }
    };
}

pub(crate) use composed;
