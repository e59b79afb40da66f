//! The command line of the bench program.

use crate::{Case, Error, Op, Pass, Result, table};
use clap::{Parser, builder::RangedU64ValueParser};
use gradewise_core::{DType, Signature};
use gradewise_kernels::Compute;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples (after cargo bench --features cuda --bench gpu --):
  (nothing)                                            the table of docs/benchmarks.md
  --matmul                                             plain matrix products beside cuBLASLt
  --op layer --batch 4096 --features 512               one operator
  --op product --pass fwd --dtype bf16 --iters 3 --nvtx   for ncu and nsys (docs/profiling.md)
  --op layer,product --batch 1024,8192 --signature 2,0,0 --signature 3,0,0   every combination
  --sweep --json sweep.json                            the grid of the heat maps
  --op layer --batch 1024 --tune tiles.txt             the fastest tiles of a layer's products, for GRADEWISE_TUNING

--op, --matmul, --sweep and --json fail without a CUDA device, and so does the plain table with GRADEWISE_REQUIRE_GPU=1;
otherwise it says why it is skipped.";

/// Time operators, layers and training steps on a CUDA device, and compare them with their floors.
///
/// Medians of CUDA events after a warm-up, on random inputs. Each comes with its share of the floor: the time of the
/// minimum bytes and matrix products, at rates measured in the same run.
#[derive(Clone, Debug, Parser)]
#[command(name = "gpu", after_help = EXAMPLES, max_term_width = 110)]
pub struct Arguments {
    /// Operators to time, at every combination of the sizes below, instead of the table.
    #[arg(long, value_enum, value_delimiter = ',', conflicts_with_all = ["sweep", "matmul", "only"])]
    pub op: Vec<Op>,
    /// Algebra, as p,q,r; may be repeated.
    #[arg(long, default_value = "3,0,0", value_name = "P,Q,R")]
    pub signature: Vec<Signature>,
    /// Batch sizes.
    #[arg(long, default_value = "4096", value_delimiter = ',', value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub batch: Vec<usize>,
    /// Numbers of features.
    #[arg(long, default_value = "512", value_delimiter = ',', value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub features: Vec<usize>,
    /// Storage types: f32, bf16, f16, f64.
    #[arg(long, default_value = "f32", value_delimiter = ',')]
    pub dtype: Vec<DType>,
    /// Arithmetic of f32 matrix products: tf32 or exact.
    #[arg(long, default_value = "tf32", value_delimiter = ',')]
    pub compute: Vec<Compute>,
    /// Passes to time.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "fwd,both,graph")]
    pub pass: Vec<Pass>,
    /// Measured runs.
    #[arg(long, default_value_t = 30, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub iters: usize,
    /// Warm-up runs.
    #[arg(long, default_value_t = 3)]
    pub warm_up: usize,
    /// Name warm-up and measurement as NVTX ranges, and leave out the ceilings: for profilers.
    #[arg(long)]
    pub nvtx: bool,
    /// Number of the CUDA device.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub device: usize,
    /// Write a report for bench-plots and benches/compare_gpu.py.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Only cases of the table whose line has this text.
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// The layer over batch 1024 to 8192 × features 128 to 1024, and 65536×512, in Cl(2,0) and Cl(3,0).
    #[arg(long, conflicts_with = "matmul")]
    pub sweep: bool,
    /// Square matrix products beside cuBLASLt.
    #[arg(long)]
    pub matmul: bool,
    /// Run the case once and write inputs, output and gradients as safetensors, instead of timing it.
    #[arg(long, value_name = "FILE", requires = "op", conflicts_with_all = ["json", "nvtx"])]
    pub dump: Option<PathBuf>,
    /// Measure the tiles of the cases' matrix products, add the fastest to this table, and stop. `GRADEWISE_TUNING` names the table
    /// that programs use.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "nvtx", "dump"])]
    pub tune: Option<PathBuf>,
    /// The commit to name in the report, instead of git's.
    #[arg(long, value_name = "TEXT")]
    pub commit: Option<String>,
    /// Ignored: cargo passes it to every bench.
    #[arg(long, hide = true)]
    bench: bool,
}

/// The kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The table of docs/benchmarks.md, plain products included.
    Table,
    /// Plain products alone.
    Matmul,
    /// The grid of the heat maps.
    Sweep,
    /// The cases given by the arguments.
    Given,
}

impl Arguments {
    /// The kind of request.
    pub fn kind(&self) -> Kind {
        match self {
            Self { sweep: true, .. } => Kind::Sweep,
            Self { matmul: true, .. } => Kind::Matmul,
            Self { op, .. } if !op.is_empty() => Kind::Given,
            _ => Kind::Table,
        }
    }

    /// The cases, each once, in the order in which they are measured.
    ///
    /// # Errors
    /// A text for `--only` that matches no case.
    pub fn cases(&self) -> Result<Vec<Case>> {
        let mut cases = match self.kind() {
            Kind::Table => table::table(),
            Kind::Matmul => table::matmul(),
            Kind::Sweep => table::sweep(),
            Kind::Given => self.given(),
        };
        if let Some(only) = &self.only {
            cases.retain(|case| case.to_string().contains(only.as_str()));
            if cases.is_empty() {
                return Err(Error::Request(format!("--only {only:?}: no case has this text in its line")));
            }
        }
        Ok(cases)
    }

    fn given(&self) -> Vec<Case> {
        let mut cases: Vec<Case> = Vec::new();
        for &op in &self.op {
            for &signature in &self.signature {
                for &batch in &self.batch {
                    for &features in &self.features {
                        for &dtype in &self.dtype {
                            for &compute in &self.compute {
                                let case = Case::new(op, signature, (batch, features), dtype, compute);
                                if !cases.contains(&case) {
                                    cases.push(case);
                                }
                            }
                        }
                    }
                }
            }
        }
        cases
    }

    /// Whether a missing device is an error, rather than a reason to skip.
    pub(crate) fn insists(&self) -> bool {
        self.kind() != Kind::Table || self.json.is_some() || self.tune.is_some() || required()
    }
}

/// Whether `GRADEWISE_REQUIRE_GPU=1` makes a missing device a failure, as in tests.
pub fn required() -> bool {
    std::env::var_os("GRADEWISE_REQUIRE_GPU").is_some_and(|value| value == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &str) -> std::result::Result<Arguments, String> {
        let arguments = std::iter::once("gpu").chain(arguments.split_whitespace());
        Arguments::try_parse_from(arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn one_operator_is_given_as_profilers_want_it() {
        let arguments = parse(
            "--bench --op product --signature 1,3,0 --batch 64 --features 128 --dtype bf16 --compute exact --pass fwd \
             --iters 3 --nvtx --device 1 --json out.json",
        )
        .unwrap();
        assert_eq!(arguments.kind(), Kind::Given);
        let case = Case::new(Op::Product, Signature::STA, (64, 128), DType::BF16, Compute::Exact);
        assert_eq!(arguments.cases().unwrap(), [case]);
        assert_eq!((arguments.pass, arguments.iters, arguments.device), (vec![Pass::Forward], 3, 1));
    }

    #[test]
    fn lists_give_every_combination_once() {
        let arguments =
            parse("--op layer,matmul --signature 2,0,0 --signature 3,0,0 --batch 8,16 --dtype f32,bf16")
                .unwrap();
        // A matrix product does not depend on the algebra.
        assert_eq!(arguments.cases().unwrap().len(), 2 * 2 * 2 + 2 * 2);
    }

    #[test]
    fn the_table_the_sweep_and_the_products_have_their_cases() {
        let cases = |text: &str| parse(text).unwrap().cases().unwrap();
        let sweep = cases("--sweep");
        assert_eq!(sweep.len(), 2 * (4 * 4 + 1));
        assert!(sweep.iter().all(|case| case.op == Op::Layer));
        assert_eq!(cases("--matmul").len(), 4);
        let table = cases("");
        assert!(cases("--matmul").iter().all(|case| table.contains(case)));
        assert!(cases("--only bf16").iter().all(|case| case.dtype == DType::BF16));
        for (index, case) in table.iter().enumerate() {
            assert!(!table[..index].contains(case), "{case} is there twice");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_can() {
        let refused = |text: &str| parse(text).unwrap_err();
        assert!(refused("--op laier").contains("layer"), "the names are listed");
        assert!(refused("--signature 3,x").contains("signature"));
        assert!(refused("--dtype f8").contains("f8"));
        assert!(refused("--batch 0 --op layer").contains("--batch"));
        assert!(refused("--iters 0").contains("--iters"));
        assert!(refused("--sweep --op layer").contains("cannot be used with"));
        assert!(refused("--dump x").contains("--op"));
        assert!(
            parse("--only nothing")
                .unwrap()
                .cases()
                .unwrap_err()
                .to_string()
                .contains("no case has this text")
        );
    }

    #[test]
    fn a_table_is_skipped_without_a_device_and_anything_definite_fails() {
        for (text, insists) in [
            ("", false),
            ("--only layer", false),
            ("--sweep", true),
            ("--matmul", true),
            ("--op fc", true),
            ("--json x", true),
        ] {
            // Where the environment wants a GPU, everything does.
            assert_eq!(parse(text).unwrap().insists(), insists || required(), "{text}");
        }
    }
}
