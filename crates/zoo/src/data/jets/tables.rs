//! Jets from HDF5 files.

use super::{FourMomentum, kept::Kept};
use crate::data::hdf5::{Column, Source, Table};
use gradewise_nn::Result;
use std::path::Path;

/// Path of the table in the published files, which pandas wrote.
const TABLE: &str = "table/table";
/// Four-momenta and classes in files prepared for LorentzNet and the Lorentz Group Network.
const MOMENTA: &str = "Pmu";
const CLASSES: [&str; 2] = ["is_signal", "label"];
/// Adds the jets of a file: from the published table, or from arrays prepared from it.
pub(super) fn read(path: &Path, kept: &mut Kept) -> Result<()> {
    let source = Source::open(path)?;
    match source.rows(TABLE)? {
        Some(rows) => read_table(&Table::new(rows)?, kept),
        None => read_arrays(&source, kept),
    }
}

fn read_table(table: &Table, kept: &mut Kept) -> Result<()> {
    let column = |name: &str| {
        let missing = || table.unusable(format!("it has no column `{name}` of numbers; {EXPECTED}"));
        table.column(name).ok_or_else(missing)
    };
    let mut slots: Vec<[Column; 4]> = Vec::new();
    while let Some(energy) = table.column(&format!("E_{}", slots.len())) {
        let momentum = |axis: &str| column(&format!("P{axis}_{}", slots.len()));
        slots.push([energy, momentum("X")?, momentum("Y")?, momentum("Z")?]);
    }
    if slots.is_empty() {
        column("E_0")?;
    }
    let class = column("is_signal_new")?;
    for range in table.blocks(kept.limit)? {
        for record in table.records(range)? {
            kept.jet.clear();
            kept.jet.extend(slots.iter().map(|slot| FourMomentum(slot.map(|column| column.of(&record)))));
            kept.push(class.of(&record))?;
        }
    }
    Ok(())
}

const EXPECTED: &str = "expected are E_0, PX_0, PY_0, PZ_0, E_1, … and is_signal_new";

fn read_arrays(source: &Source, kept: &mut Kept) -> Result<()> {
    let Some(momenta) = source.rows(MOMENTA)? else {
        let (names, inside) = (source.names("/")?, source.names("/table")?);
        return Err(source.unusable(if inside.iter().any(|name| name == "axis0") {
            "pandas wrote its table in the fixed format; write it with to_hdf(..., key=\"table\", format=\"table\")".to_owned()
        } else {
            format!("it holds neither the table `{TABLE}` nor the dataset `{MOMENTA}`, but {names:?}")
        }));
    };
    let &[jets, stored, 4] = momenta.shape() else {
        let shape = momenta.shape();
        return Err(momenta.unusable(format!("its shape is {shape:?}, expected [jets, particles, 4]")));
    };
    let mut classes = None;
    for name in CLASSES {
        // A two-axis `label` distinguishes beams from particles; it does not hold classes.
        classes = classes.or(source.rows(name)?.filter(|rows| rows.shape() == [jets]));
    }
    let Some(classes) = classes else {
        return Err(
            source.unusable(format!("it holds no dataset {} of shape [{jets}]", CLASSES.join(" or ")))
        );
    };
    let stored = usize::try_from(stored).map_err(|_| momenta.unusable("it is too large".to_owned()))?;
    for range in momenta.blocks(kept.limit)? {
        kept.extend(stored, &momenta.numbers(range.clone())?, &classes.numbers(range)?)?;
    }
    Ok(())
}
