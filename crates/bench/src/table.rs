//! The lists of cases, and their printed lines.

use crate::{Case, Op, Pass, Report, Row};
use gradewise_core::{DType, Signature};
use gradewise_kernels::Compute;
use std::fmt;

const CL2: Signature = Signature::CL2;
const CL3: Signature = Signature::CL3;

fn f32(op: Op, signature: Signature, batch: usize, features: usize) -> Case {
    Case::new(op, signature, (batch, features), DType::F32, Compute::Tf32)
}

fn bf16(op: Op, signature: Signature, batch: usize, features: usize) -> Case {
    Case::new(op, signature, (batch, features), DType::BF16, Compute::Exact)
}

/// The table of docs/benchmarks.md.
pub fn table() -> Vec<Case> {
    let mut cases = Vec::new();
    for (batch, features) in [(4096, 512), (8192, 1024)] {
        cases.extend([f32(Op::Product, CL3, batch, features), bf16(Op::Product, CL3, batch, features)]);
    }
    for (signature, batch, features) in [
        (Signature::STA, 4096, 256),
        (Signature::PGA3, 4096, 256),
        (Signature::CGA3, 2048, 128),
        (Signature::CL5, 2048, 128),
    ] {
        cases.push(f32(Op::Product, signature, batch, features));
    }
    for batch in [1024, 4096, 8192, 65536] {
        cases.extend([f32(Op::Layer, CL3, batch, 512), bf16(Op::Layer, CL3, batch, 512)]);
    }
    cases.extend([128, 1024].map(|features| f32(Op::Layer, CL3, 4096, features)));
    cases.extend([4096, 65536].map(|batch| f32(Op::Layer, CL2, batch, 512)));
    cases.push(Case { compute: Compute::Exact, ..f32(Op::Layer, CL3, 4096, 512) });
    for (batch, features) in [(4096, 512), (8192, 1024)] {
        cases.extend([f32(Op::FcProduct, CL3, batch, features), bf16(Op::FcProduct, CL3, batch, features)]);
    }
    cases.push(f32(Op::FcLayer, CL3, 4096, 512));
    cases.push(f32(Op::Linear, CL3, 4096, 512));
    for op in [Op::MvSilu, Op::MvNormalization, Op::MvLayerNorm] {
        cases.push(f32(op, CL3, 4096, 512));
    }
    cases.push(f32(Op::SteerableLayer, CL3, 2000, 28));
    cases.push(f32(Op::NBody, CL3, 100, 28));
    cases.extend(matmul());
    cases
}

/// Plain products at the sizes of the comparison with cuBLASLt.
pub fn matmul() -> Vec<Case> {
    [4096, 8192]
        .into_iter()
        .flat_map(|size| [f32(Op::Matmul, CL3, size, size), bf16(Op::Matmul, CL3, size, size)])
        .collect()
}

/// The published grid, and one large batch.
pub fn sweep() -> Vec<Case> {
    let mut cases = Vec::new();
    for signature in [CL2, CL3] {
        for batch in [1024, 2048, 4096, 8192] {
            cases.extend([128, 256, 512, 1024].map(|features| f32(Op::Layer, signature, batch, features)));
        }
        cases.push(f32(Op::Layer, signature, 65536, 512));
    }
    cases
}

/// The arithmetics whose ceilings a run measures: TF32 and bf16 always, others if a case needs them.
pub fn arithmetics(cases: &[Case]) -> Vec<(DType, Compute)> {
    let mut found = vec![(DType::F32, Compute::Tf32), (DType::BF16, Compute::Exact)];
    for case in cases {
        if !found.contains(&(case.dtype, case.compute)) {
            found.push((case.dtype, case.compute));
        }
    }
    found
}

/// Prints the machine and ceilings, which apply to all lines, and the column titles.
pub fn print_head(report: &Report) {
    let machine = &report.machine;
    let driver = machine.driver.as_deref().unwrap_or("of unknown version");
    println!(
        "{} (compute capability {}), driver {driver}, CUDA {}; {}, commit {}",
        machine.device,
        machine.compute_capability,
        machine.cuda,
        report.date,
        report.commit.as_deref().unwrap_or("unknown")
    );
    if let Some(copy) = report.ceilings.copy_bytes_per_s {
        println!("copy {:.2} TB/s (read and written)", copy / 1e12);
    }
    for (name, rate) in &report.ceilings.products {
        let side = |who: &str, rate: Option<f64>| rate.map(|rate| format!("  {who} {:.0}", rate / 1e12));
        let ours = side("ours", rate.ours).unwrap_or_default();
        let theirs =
            side(report.ceilings.vendor.as_deref().unwrap_or("cuBLASLt"), rate.vendor).unwrap_or_default();
        println!("{name} product, TFLOP/s:{ours}{theirs}");
    }
    println!("{:<46}{:>17}{:>17}{:>17}{:>10}", "ms, share of the floor", "fwd", "both", "graph", "peak MB");
}

/// A case with its rows, as one line: for each pass the median and the share of the floor.
pub struct Line {
    case: Case,
    rows: Vec<Row>,
}

impl Line {
    pub fn new(case: Case) -> Self {
        Self { case, rows: Vec::new() }
    }

    pub fn add(&mut self, row: &Row) {
        self.rows.push(row.clone());
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<46}", self.case)?;
        for pass in Pass::ALL {
            let row = self.rows.iter().find(|row| row.pass == pass);
            let time = row.map(|row| format!("{:.4}", row.ms)).unwrap_or_default();
            let share = row.and_then(|row| Some(row.floor_ms? / row.ms * 100.0));
            let share = share.map(percent).unwrap_or_default();
            write!(f, "{time:>11}{share:>6}")?;
        }
        // The largest peak of the passes: that of forward and backward, if it was measured.
        if let Some(peak) =
            self.rows.iter().filter(|row| row.pass != Pass::Graph).filter_map(|row| row.peak_bytes).max()
        {
            write!(f, "{:>10.0}", peak as f64 / 1e6)?;
        }
        if let Some((row, theirs)) = self.rows.iter().find_map(|row| Some((row, row.vendor_ms?))) {
            write!(f, "   cuBLASLt {theirs:.4}, ours at {:.2} of it", theirs / row.ms)?;
        }
        Ok(())
    }
}

/// Formats a percentage with two significant digits.
fn percent(share: f64) -> String {
    let digits = usize::from(share < 9.95);
    format!("{share:.digits$}%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_times_shares_and_memory() {
        let case = f32(Op::Layer, CL3, 4096, 512);
        let row = |pass, ms| Row {
            case,
            pass,
            variant: None,
            ms,
            low_ms: ms,
            high_ms: ms,
            runs: 3,
            peak_bytes: Some(236_000_000),
            bytes: 1,
            flops: 1,
            floor_ms: Some(0.144),
            vendor_ms: None,
        };
        let mut line = Line::new(case);
        line.add(&row(Pass::Forward, 0.3));
        line.add(&Row { peak_bytes: None, ..row(Pass::Graph, 0.288) });
        let text = line.to_string();
        assert!(text.starts_with("layer Cl(3,0,0) 4096x512 f32 tf32 "), "{text}");
        assert!(
            text.contains("0.3000   48%")
                && text.contains("0.2880   50%")
                && percent(0.34) == "0.3%"
                && text.ends_with("236"),
            "{text}"
        );
        let mut product = Line::new(f32(Op::Matmul, CL3, 4096, 4096));
        product.add(&Row { vendor_ms: Some(0.27), floor_ms: None, ..row(Pass::Forward, 0.3) });
        assert!(product.to_string().ends_with("cuBLASLt 0.2700, ours at 0.90 of it"), "{product}");
    }

    #[test]
    fn needed_arithmetics_are_measured_once() {
        assert_eq!(arithmetics(&[]).len(), 2);
        let exact = Case { compute: Compute::Exact, ..f32(Op::Layer, CL3, 1, 1) };
        assert_eq!(arithmetics(&[exact, exact, f32(Op::Layer, CL3, 1, 1)]).len(), 3);
    }
}
