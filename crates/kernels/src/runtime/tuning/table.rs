//! Tables of measured choices, and their file format: a line for each choice, words separated by blanks, `#` starts a comment.

use super::Tile;
use arc_swap::ArcSwapOption;
use gradewise_core::DType;
use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
    sync::{Arc, LazyLock},
};

/// Which operands of a product `A·B` are stored transposed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Layout {
    /// Neither.
    Nn,
    /// B.
    Nt,
    /// A.
    Tn,
}

impl Layout {
    /// For A and B stored transposed or not; both is never computed as such.
    #[must_use]
    pub const fn of(a: bool, b: bool) -> Self {
        match (a, b) {
            (true, _) => Self::Tn,
            (false, true) => Self::Nt,
            (false, false) => Self::Nn,
        }
    }
}

/// A product: what its fastest tile depends on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Shape {
    /// Storage of operands and result.
    pub dtype: DType,
    /// How the operands are stored.
    pub layout: Layout,
    /// Rows of a result.
    pub m: usize,
    /// Columns of a result.
    pub n: usize,
    /// Terms of a segment of its sum.
    pub k: usize,
    /// Number of results.
    pub count: usize,
    /// Segments of all sums together.
    pub segments: usize,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dtype, layout, m, n, k, count, segments } = self;
        let layout = match layout {
            Layout::Nn => "nn",
            Layout::Nt => "nt",
            Layout::Tn => "tn",
        };
        write!(f, "{dtype} {layout} {m} {n} {k} {count} {segments}")
    }
}

/// One line of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// The product.
    pub shape: Shape,
    /// Its fastest tile.
    pub tile: Tile,
}

/// An invalid table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// Not a tile of this version.
    #[error("`{text}` is not a tile; there are {}; tune again with this version", all_tiles())]
    Tile {
        /// What was found.
        text: String,
    },
    /// A malformed line.
    #[error(
        "line {line} of the tuning table: {problem}; a line is `device | dtype layout m n k count segments tile`"
    )]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// A file that cannot be read or written.
    #[error("{path}: {problem}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        problem: String,
    },
}

fn all_tiles() -> String {
    Tile::ALL.map(|tile| tile.to_string()).join(", ")
}

/// Measured choices by the name of the device they were measured on.
///
/// ```
/// use gradewise_core::DType;
/// use gradewise_kernels::tuning::{Choice, Layout, Shape, Table, Tile};
///
/// let shape = Shape { dtype: DType::BF16, layout: Layout::Nn, m: 4096, n: 512, k: 512, count: 8, segments: 8 };
/// let mut table = Table::default();
/// table.set("NVIDIA H200", Choice { shape, tile: Tile::ALL[1] });
/// assert_eq!(table.to_string().parse::<Table>()?, table);
/// assert_eq!(table.get("NVIDIA H200", &shape), Some(Tile::ALL[1]));
/// assert_eq!(table.get("NVIDIA H100 80GB HBM3", &shape), None, "another device has other choices");
/// # Ok::<(), gradewise_kernels::tuning::TableError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Table {
    choices: BTreeMap<String, BTreeMap<Shape, Tile>>,
}

/// The table in use, if there is one.
static INSTALLED: LazyLock<ArcSwapOption<Table>> = LazyLock::new(ArcSwapOption::default);

impl Table {
    /// The choice for a product.
    #[must_use]
    pub fn get(&self, device: &str, shape: &Shape) -> Option<Tile> {
        self.choices.get(device)?.get(shape).copied()
    }

    /// Notes a choice, in place of an earlier one.
    pub fn set(&mut self, device: &str, choice: Choice) {
        self.choices.entry(device.trim().to_owned()).or_default().insert(choice.shape, choice.tile);
    }

    /// Number of choices.
    #[must_use]
    pub fn len(&self) -> usize {
        self.choices.values().map(BTreeMap::len).sum()
    }

    /// Whether there is no choice.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.choices.is_empty()
    }

    /// Takes over the choices of `other`.
    pub fn merge(&mut self, other: Self) {
        for (device, choices) in other.choices {
            self.choices.entry(device).or_default().extend(choices);
        }
    }

    /// Makes this the table of the process, in place of the one in use.
    pub fn install(self) {
        INSTALLED.store(Some(Arc::new(self)));
    }

    /// The variable that names a file with a table.
    pub(crate) const VARIABLE: &str = "GRADEWISE_TUNING";

    /// Makes this the table of the process unless there is one.
    pub(crate) fn install_first(self) {
        INSTALLED.compare_and_swap(&None::<Arc<Self>>, Some(Arc::new(self)));
    }

    /// The tile from the table in use.
    pub(super) fn installed(device: &str, shape: &Shape) -> Option<Tile> {
        INSTALLED.load().as_ref()?.get(device, shape)
    }

    /// Reads a table.
    ///
    /// # Errors
    /// [`TableError`], with the line where there is one.
    pub fn read(path: &Path) -> Result<Self, TableError> {
        std::fs::read_to_string(path).map_err(|error| file(path, &error))?.parse()
    }

    /// Writes the table atomically: an existing file is replaced once the new one is complete.
    ///
    /// # Errors
    /// [`TableError::File`].
    pub fn write(&self, path: &Path) -> Result<(), TableError> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}", std::process::id()));
        let beside = path.with_file_name(name);
        std::fs::write(&beside, self.to_string()).map_err(|error| file(&beside, &error))?;
        std::fs::rename(&beside, path).map_err(|error| file(path, &error))
    }
}

fn file(path: &Path, error: &std::io::Error) -> TableError {
    TableError::File { path: path.to_owned(), problem: error.to_string() }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# device | dtype layout m n k count segments tile (rows x columns x blocks of a cluster)"
        )?;
        for (device, choices) in &self.choices {
            for (shape, tile) in choices {
                writeln!(f, "{device} | {shape} {tile}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for Table {
    type Err = TableError;

    fn from_str(text: &str) -> Result<Self, TableError> {
        let mut table = Self::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let wrong = |problem: String| TableError::Line { line: number + 1, problem };
            let (device, rest) =
                line.split_once('|').ok_or_else(|| wrong("no `|` after the device's name".to_owned()))?;
            let words: Vec<&str> = rest.split_whitespace().collect();
            let [dtype, layout, m, n, k, count, segments, tile] = words[..] else {
                return Err(wrong(format!("{} words after the device's name instead of 8", words.len())));
            };
            let size =
                |word: &str| word.parse::<usize>().map_err(|_| wrong(format!("`{word}` is not a size")));
            let layout = match layout {
                "nn" => Layout::Nn,
                "nt" => Layout::Nt,
                "tn" => Layout::Tn,
                _ => return Err(wrong(format!("`{layout}` is not a layout; write nn, nt or tn"))),
            };
            let shape = Shape {
                dtype: dtype.parse().map_err(|error| wrong(format!("{error}")))?,
                layout,
                m: size(m)?,
                n: size(n)?,
                k: size(k)?,
                count: size(count)?,
                segments: size(segments)?,
            };
            let tile = tile.parse().map_err(|error: TableError| wrong(error.to_string()))?;
            table.set(device, Choice { shape, tile });
        }
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shapes() -> impl Strategy<Value = Shape> {
        let dtypes = prop_oneof![Just(DType::F32), Just(DType::BF16), Just(DType::F16)];
        let layouts = prop_oneof![Just(Layout::Nn), Just(Layout::Nt), Just(Layout::Tn)];
        (dtypes, layouts, any::<[u16; 5]>()).prop_map(|(dtype, layout, sizes)| {
            let [m, n, k, count, segments] = sizes.map(usize::from);
            Shape { dtype, layout, m, n, k, count, segments }
        })
    }

    proptest! {
        #[test]
        fn tables_survive_their_text(
            choices in prop::collection::vec((0usize..3, shapes(), 0usize..Tile::ALL.len()), 0..20),
        ) {
            let mut table = Table::default();
            for (device, shape, tile) in choices {
                let device = ["NVIDIA H200", "NVIDIA H100 80GB HBM3", "a"][device];
                table.set(device, Choice { shape, tile: Tile::ALL[tile] });
                prop_assert_eq!(table.get(device, &shape), Some(Tile::ALL[tile]));
            }
            prop_assert_eq!(table.to_string().parse::<Table>().unwrap(), table);
        }
    }

    #[test]
    fn bad_lines_are_named() {
        let good = "NVIDIA H200 | bf16 nn 1 2 3 4 5 128x256x2";
        assert_eq!(good.parse::<Table>().unwrap().len(), 1);
        for (bad, part) in [
            ("NVIDIA H200 bf16 nn 1 2 3 4 5 128x256x2", "no `|`"),
            ("a | bf16 nn 1 2 3 4 128x256x2", "7 words"),
            ("a | bf17 nn 1 2 3 4 5 128x256x2", "bf17"),
            ("a | bf16 tt 1 2 3 4 5 128x256x2", "`tt`"),
            ("a | bf16 nn 1 2 -3 4 5 128x256x2", "`-3`"),
            ("a | bf16 nn 1 2 3 4 5 64x64x1", "128x256x1"),
        ] {
            let error = format!("# comment\n{good}\n{bad}").parse::<Table>().unwrap_err().to_string();
            assert!(error.contains("line 3") && error.contains(part), "{error}");
        }
    }

    #[test]
    fn files_are_replaced_whole_and_missing_ones_named() {
        let directory = std::env::temp_dir().join(format!("gradewise-tuning-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("table.txt");
        let error = Table::read(&path).unwrap_err().to_string();
        assert!(error.contains("table.txt"), "{error}");
        let table: Table = "a | f32 tn 1 2 3 4 5 128x128x1".parse().unwrap();
        table.write(&path).unwrap();
        table.write(&path).unwrap();
        assert_eq!(Table::read(&path).unwrap(), table);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
