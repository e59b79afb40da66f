//! `gradcheck`: gradients of every operator against central differences, in double precision.

use super::cases;
use crate::{
    cli::Gradcheck,
    error::{Error, Result},
    output,
};
use gradewise_autograd::{GradcheckOptions, gradcheck, gradgradcheck};
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::Device;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

pub fn run(arguments: &Gradcheck) -> Result<()> {
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
