//! `gradcheck`: gradients of every operator against central differences, in double precision.

use crate::{
    Command, Program,
    error::{Error, Result},
    output,
};
use clap::Args;
use gradewise_autograd::{
    GradcheckOptions, Sizes,
    registry::{self, Entry, Order},
};
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::DeviceName;

/// Rows and features of the samples: odd and small, so that vectorised loops have tails.
const SIZES: [usize; 2] = [3, 5];

/// Check gradients against central differences, in double precision.
///
/// Checks every operator, element by element; with --second, second derivatives, too. Exits with 1 if one disagrees.
/// Norms of algebras with an indefinite metric are nearly singular where a square crosses zero: where differences show nothing, inputs are
/// drawn again, unless --singular asks for the first draw.
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
    /// Check second derivatives, too.
    #[arg(long)]
    pub second: bool,
    /// Elements checked per input.
    #[arg(long, default_value_t = 64)]
    pub samples: usize,
    /// cpu, cuda or cuda:N.
    #[arg(long, default_value = "cpu")]
    pub device: DeviceName,
    /// Keep inputs at which an operator is nearly singular; where differences show nothing there, the check fails and says so.
    #[arg(long)]
    pub singular: bool,
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
    if arguments.samples == 0 {
        return Err(Error::Usage("--samples 0 compares nothing; write at least 1".to_owned()));
    }
    let device = arguments.device.open()?;
    let signature: Signature = arguments.signature.parse()?;
    let [batch, features] = SIZES;
    let sizes = Sizes { algebra: Algebra::new(signature)?, batch, features };
    let all = registry::entries();
    let chosen: Vec<&Entry> = all
        .iter()
        .filter(|entry| arguments.only.as_ref().is_none_or(|part| entry.name().contains(part.as_str())))
        .collect();
    if chosen.is_empty() {
        let names: Vec<&str> = all.iter().map(Entry::name).collect();
        return Err(Error::Usage(format!("--only matches no operator; there are {}", names.join(", "))));
    }
    let options = GradcheckOptions { samples: arguments.samples, seed: arguments.seed, ..Default::default() };
    let width = chosen.iter().map(|entry| entry.name().len()).max().unwrap_or(0);
    let orders: &[(&str, Order)] = match arguments.second {
        true => &[("first", Order::First), ("second", Order::Second)],
        false => &[("first", Order::First)],
    };
    let mut failures = 0;
    for entry in &chosen {
        for (name, order) in orders {
            let check = if arguments.singular { Entry::check_once } else { Entry::check };
            let (verdict, text) = match check(entry, &device, &sizes, *order, &options) {
                Ok(checked) => ("ok  ", format!("{checked} elements")),
                Err(error) => {
                    failures += 1;
                    ("FAIL", error.to_string())
                }
            };
            output::print(&format!("{verdict} {:width$}  {name:6}  {text}\n", entry.name()))?;
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
