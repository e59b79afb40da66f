//! `gradcheck`: gradients of every operator against central differences, in double precision.

use crate::cases;
use crate::{
    Command, Program,
    error::{Error, Result},
    output,
};
use clap::Args;
use gradewise_autograd::{GradcheckOptions, gradcheck, gradgradcheck};
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::Device;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// Check gradients against central differences, in double precision.
///
/// Every operator, element by element; also second derivatives with --second. Exits with 1 if one disagrees.
/// Norms of algebras with an indefinite metric are nearly singular where a square crosses zero: inputs drawn there
/// can fail without a fault in the operator; try another seed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise gradcheck
  gradewise gradcheck --signature 3,0,1 --second
  gradewise gradcheck --only sgp --samples 500")]
pub struct Gradcheck {
    /// Signature of the algebra: p,q,r.
    #[arg(long, default_value = "3,0,0", value_name = "P,Q,R")]
    pub signature: String,
    /// Only operators whose name contains this.
    #[arg(long, value_name = "NAME")]
    pub only: Option<String>,
    /// Second derivatives too.
    #[arg(long)]
    pub second: bool,
    /// Elements checked per input.
    #[arg(long, default_value_t = 64)]
    pub samples: usize,
    /// cpu, cuda or cuda:N.
    #[arg(long, default_value = "cpu")]
    pub device: String,
    /// Seed of the inputs.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

impl Command for Gradcheck {
    const NAME: &'static str = "gradcheck";

    fn run(&self, _: &Program) -> Result<()> {
        run(self)
    }
}

fn run(arguments: &Gradcheck) -> Result<()> {
    let device: Device = arguments.device.parse()?;
    let signature: Signature = arguments.signature.parse()?;
    let algebra = Algebra::new(signature)?;
    let all = cases::all();
    let chosen: Vec<&cases::Case> = all
        .iter()
        .filter(|case| arguments.only.as_ref().is_none_or(|part| case.name.contains(part.as_str())))
        .collect();
    if chosen.is_empty() {
        let names: Vec<&str> = all.iter().map(|case| case.name).collect();
        return Err(Error::Usage(format!("--only matches no operator; there are {}", names.join(", "))));
    }
    let options = GradcheckOptions { samples: arguments.samples, seed: arguments.seed, ..Default::default() };
    let width = chosen.iter().map(|case| case.name.len()).max().unwrap_or(0);
    let mut failures = 0;
    for case in &chosen {
        let mut rng = ChaCha8Rng::seed_from_u64(arguments.seed);
        let inputs = (case.inputs)(&algebra, &device, &mut rng).map_err(gradewise_nn::Error::from)?;
        let references: Vec<_> = inputs.iter().collect();
        let first = gradcheck(|x| (case.function)(&algebra, x), &references, &options);
        let second = (arguments.second && case.smooth)
            .then(|| gradgradcheck(|x| (case.function)(&algebra, x), &references, &options));
        for (order, outcome) in [("first", Some(first)), ("second", second)] {
            let Some(outcome) = outcome else { continue };
            let (verdict, text) = match outcome {
                Ok(report) => ("ok  ", format!("{} elements", report.checked)),
                Err(error) => {
                    failures += 1;
                    ("FAIL", error.to_string())
                }
            };
            output::print(&format!("{verdict} {:width$}  {order:6}  {text}\n", case.name))?;
        }
    }
    output::print(&format!(
        "\n{} operators of {signature} on {device}: {}\n",
        chosen.len(),
        if failures == 0 {
            "all agree with central differences".to_owned()
        } else {
            format!("{failures} FAIL")
        }
    ))?;
    if failures == 0 { Ok(()) } else { Err(Error::Failed(format!("{failures} gradient checks fail"))) }
}
