//! Neighbours that are kept while atoms move little.

use super::{Neighbours, OPERATION};
use crate::data::atoms::{
    Cell,
    frame::{Vector, dot},
};
use gradewise_nn::{Error, Result};

/// Neighbours within the cutoff along a trajectory. Pairs are sought within the cutoff and a skin, and sought again when an atom has moved by
/// half the skin, or the cell has changed.
#[derive(Clone, Debug)]
pub struct SkinList {
    cutoff: f64,
    skin: f64,
    wide: Neighbours,
    positions: Vec<Vector>,
    cell: Option<Cell>,
    searches: usize,
}

impl SkinList {
    /// A list for a cutoff and a skin, in Å.
    ///
    /// # Errors
    /// [`Error::Argument`] for a cutoff that is not positive, or a negative skin.
    pub fn new(cutoff: f64, skin: f64) -> Result<Self> {
        if !(cutoff > 0.0 && skin >= 0.0 && (cutoff + skin).is_finite()) {
            return Err(Error::Argument {
                operation: OPERATION,
                argument: "skin",
                actual: format!("{skin} with a cutoff of {cutoff}"),
                expected: "at least 0, with a cutoff above 0".to_owned(),
            });
        }
        let wide = Neighbours::default();
        Ok(Self { cutoff, skin, wide, positions: Vec::new(), cell: None, searches: 0 })
    }

    /// How often pairs were sought.
    pub fn searches(&self) -> usize {
        self.searches
    }

    /// The positions of the last search; none before the first. A list that is given them first goes on with equal pairs in equal order.
    pub fn searched_at(&self) -> &[Vector] {
        &self.positions
    }

    /// The cutoff, in Å.
    pub fn cutoff(&self) -> f64 {
        self.cutoff
    }

    /// The pairs within the cutoff and the skin at the positions of the last search.
    pub fn wide(&self) -> &Neighbours {
        &self.wide
    }

    /// How much farther than the cutoff pairs are sought, in Å.
    pub fn skin(&self) -> f64 {
        self.skin
    }

    /// Seeks the pairs within the cutoff and the skin, whether or not atoms have moved. They have all pairs within the cutoff until an atom
    /// has moved by half the skin.
    ///
    /// # Errors
    /// As [`Neighbours::find`].
    pub fn search(&mut self, positions: &[Vector], cell: Option<&Cell>) -> Result<&Neighbours> {
        self.wide = Neighbours::find(positions, cell, self.cutoff + self.skin)?;
        (self.positions, self.cell) = (positions.to_vec(), cell.copied());
        self.searches += 1;
        Ok(&self.wide)
    }

    /// The pairs within the cutoff now.
    ///
    /// # Errors
    /// As [`Neighbours::find`].
    pub fn update(&mut self, positions: &[Vector], cell: Option<&Cell>) -> Result<Neighbours> {
        let limit = (self.skin / 2.0).powi(2);
        let moved = |(now, before): (&Vector, &Vector)| {
            let difference = std::array::from_fn(|axis| now[axis] - before[axis]);
            let square = dot(difference, difference);
            // NaN counts as moved; the search refuses it.
            square.is_nan() || square >= limit
        };
        let stale = self.searches == 0
            || positions.len() != self.positions.len()
            || cell.copied() != self.cell
            || positions.iter().zip(&self.positions).any(moved);
        if stale {
            self.search(positions, cell)?;
        }
        let square = self.cutoff * self.cutoff;
        Ok(self.wide.filtered(|k| {
            let difference = self.wide.difference(k, positions, cell);
            dot(difference, difference) < square
        }))
    }
}
