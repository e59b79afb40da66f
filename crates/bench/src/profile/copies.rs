//! Totals of copies between host and device.

use gradewise_kernels::transfers::{Direction, Transfer};
use serde::Serialize;
use std::{collections::BTreeMap, fmt};

/// The copies of an operation in one direction, per step.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CopyRow {
    /// The operation that caused them.
    pub operation: &'static str,
    /// `to device` or `to host`.
    pub direction: String,
    /// Number of copies per step.
    pub calls: f64,
    /// Bytes per step.
    pub bytes: f64,
    /// Seconds per step.
    pub seconds: f64,
    /// Achieved bytes per second.
    pub bytes_per_s: f64,
}

impl CopyRow {
    /// The copies of `steps` steps by operation and direction, the longest first.
    pub fn of(transfers: &[Transfer], steps: usize) -> Vec<Self> {
        let mut sums: BTreeMap<(Direction, &str), (usize, usize, f64)> = BTreeMap::new();
        for transfer in transfers {
            let sum = sums.entry((transfer.direction, transfer.operation)).or_default();
            *sum = (sum.0 + 1, sum.1 + transfer.bytes, sum.2 + transfer.seconds);
        }
        let steps = steps.max(1) as f64;
        let row = |((direction, operation), (calls, bytes, seconds)): (_, (usize, usize, f64))| Self {
            operation,
            direction: Direction::to_string(&direction),
            calls: calls as f64 / steps,
            bytes: bytes as f64 / steps,
            seconds: seconds / steps,
            bytes_per_s: if seconds > 0.0 { bytes as f64 / seconds } else { 0.0 },
        };
        let mut rows: Vec<Self> = sums.into_iter().map(row).collect();
        rows.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        rows
    }

    /// The column titles.
    pub fn heading() -> String {
        format!(
            "{:<33}{:<10}{:>8}{:>11}{:>11}{:>9}",
            "copy between host and device", "direction", "calls", "ms", "MB", "GB/s"
        )
    }
}

impl fmt::Display for CopyRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, direction, calls, bytes, seconds, bytes_per_s } = self;
        write!(
            f,
            "{operation:<32} {direction:<10}{calls:>8.1}{:>11.4}{:>11.4}{:>9.2}",
            1e3 * seconds,
            1e-6 * bytes,
            1e-9 * bytes_per_s
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_added_up_by_operation_and_direction() {
        let copy = |operation, direction, bytes, seconds| Transfer { operation, direction, bytes, seconds };
        let rows = CopyRow::of(
            &[
                copy("upload", Direction::ToDevice, 1_000_000, 1e-3),
                copy("upload", Direction::ToDevice, 3_000_000, 1e-3),
                copy("to_vec", Direction::ToHost, 8, 4e-3),
            ],
            2,
        );
        assert_eq!(
            (rows[0].operation, rows[0].direction.as_str(), rows[0].calls),
            ("to_vec", "to host", 0.5)
        );
        assert_eq!((rows[1].calls, rows[1].bytes, rows[1].seconds), (1.0, 2e6, 1e-3));
        assert!((rows[1].bytes_per_s - 2e9).abs() < 1.0);
        let line = rows[1].to_string();
        for part in ["upload", "to device", "1.0000", "2.0000", "2.00"] {
            assert!(line.contains(part), "`{part}` is not in: {line}");
        }
        assert_eq!(line.chars().count(), CopyRow::heading().chars().count());
        assert!(CopyRow::of(&[], 0).is_empty());
    }
}
