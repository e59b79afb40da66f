//! Sizes for readers.

use std::fmt;

/// A number of bytes for readers: `1.5 MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0 as f64;
        f.pad(&match self.0 {
            0..1024 => format!("{} B", self.0),
            1024..1_048_576 => format!("{:.1} KiB", value / 1024.0),
            1_048_576..1_073_741_824 => format!("{:.1} MiB", value / 1_048_576.0),
            _ => format!("{:.2} GiB", value / 1_073_741_824.0),
        })
    }
}
