//! Recorded fields, their files, and what their components are.

use crate::data::npy::{NpyArray, encode_f32};
use gradewise_nn::{
    Error, Result,
    checkpoint::replace_file,
    data::{Split, check_finite},
};
use std::{ops::Range, path::Path};

/// The layout of recorded fields: what each component is.
#[derive(Debug, PartialEq)]
pub struct FieldLayout {
    /// Name of the data in files.
    pub name: &'static str,
    /// Arrays of the published files: their names and their components. An array of one component has no component axis.
    pub files: &'static [(&'static str, Range<usize>)],
    /// Components that form one physical quantity, for errors and figures: key and label of its error.
    pub quantities: &'static [(&'static str, &'static str, Range<usize>)],
    /// Axes of space.
    pub space_axes: usize,
    /// Squares of the generators: one for each axis of the grid that models see.
    pub metric: &'static [i8],
    /// The first blade of the data.
    pub first_blade: usize,
    /// The component and the sign of each blade from `first_blade` on.
    pub blades: &'static [(usize, f64)],
    /// The factor by which values are multiplied for models.
    pub scale: f64,
}

impl FieldLayout {
    /// Numbers at each point and time.
    pub fn components(&self) -> usize {
        self.blades.len()
    }

    /// The blades of the data.
    pub fn blade_range(&self) -> Range<usize> {
        self.first_blade..self.first_blade + self.blades.len()
    }
}

/// Recorded fields `[trajectories, frames, *space, components]`, in single precision as published.
#[derive(Clone, PartialEq, Debug)]
pub struct FieldSet {
    layout: &'static FieldLayout,
    trajectories: usize,
    frames: usize,
    space: Vec<usize>,
    values: Vec<f32>,
}

impl FieldSet {
    /// Recorded fields from the values of all trajectories.
    ///
    /// # Errors
    /// [`Error::Argument`] if the lengths disagree; [`Error::NotFinite`].
    pub fn new(
        layout: &'static FieldLayout,
        (trajectories, frames): (usize, usize),
        space: &[usize],
        values: Vec<f32>,
    ) -> Result<Self> {
        let count = trajectories * frames * space.iter().product::<usize>() * layout.components();
        if values.len() != count {
            return Err(Error::Argument {
                operation: "recorded fields",
                argument: "values",
                actual: format!("{} numbers", values.len()),
                expected: format!(
                    "{count}, of {trajectories} trajectories, {frames} frames, a grid of {space:?} and {} components",
                    layout.components()
                ),
            });
        }
        check_finite(
            "recorded fields",
            layout.name,
            &[values.len()],
            &values.iter().map(|&value| f64::from(value)).collect::<Vec<_>>(),
        )?;
        Ok(Self { layout, trajectories, frames, space: space.to_vec(), values })
    }

    /// The layout of the components.
    pub fn layout(&self) -> &'static FieldLayout {
        self.layout
    }

    /// Number of trajectories.
    pub fn trajectories(&self) -> usize {
        self.trajectories
    }

    /// Frames of each trajectory.
    pub fn frames(&self) -> usize {
        self.frames
    }

    /// Extents of the grid.
    pub fn space(&self) -> &[usize] {
        &self.space
    }

    /// All values, row-major.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// A frame of a trajectory, `[*space, components]`.
    pub fn frame(&self, trajectory: usize, frame: usize) -> &[f32] {
        let size = self.space.iter().product::<usize>() * self.layout.components();
        &self.values[(trajectory * self.frames + frame) * size..][..size]
    }

    /// Writes `{name}_{split}_{array}.npy`, `[trajectories, frames, *space]` or `[…, components]`, in single precision: the arrays of the
    /// published files.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn save(&self, folder: &Path, split: Split) -> Result<()> {
        let width = self.layout.components();
        for (name, range) in self.layout.files {
            let points = self.values.chunks_exact(width);
            let values: Vec<f64> =
                points.flat_map(|point| &point[range.clone()]).map(|&value| f64::from(value)).collect();
            let bytes = encode_f32(&self.shape_of(range), &values)?;
            replace_file(folder.join(self.file(split, name)), |file| file.write_all(&bytes))?;
        }
        Ok(())
    }

    /// Reads the first `trajectories` of files that [`save`](Self::save) writes.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Format`] for files that are missing, damaged, of another shape, or of fewer trajectories;
    /// [`Error::NotFinite`].
    pub fn load(
        layout: &'static FieldLayout,
        folder: &Path,
        split: Split,
        trajectories: usize,
    ) -> Result<Self> {
        let axes = layout.space_axes;
        let width = layout.components();
        let mut found: Option<(usize, Vec<usize>)> = None;
        let mut values = Vec::new();
        for (name, range) in layout.files {
            let path = folder.join(format!("{}_{split}_{name}.npy", layout.name));
            let array = NpyArray::read(&path)?;
            let mut expected = vec![None; 2 + axes];
            if let Some((frames, space)) = &found {
                expected = [&[None, Some(*frames)][..], &space.iter().map(|&n| Some(n)).collect::<Vec<_>>()]
                    .concat();
            }
            if range.len() > 1 {
                expected.push(Some(range.len()));
            }
            array.expect_shape(&path, &expected, "trajectories, frames, space")?;
            if array.shape[0] < trajectories {
                return Err(Error::Format {
                    path,
                    format: ".npy",
                    reason: format!("it has {} trajectories, {trajectories} are asked for", array.shape[0]),
                });
            }
            let (frames, space) = (array.shape[1], array.shape[2..2 + axes].to_vec());
            let points = trajectories * frames * space.iter().product::<usize>();
            values.resize(points * width, 0f32);
            let rows = array.values.chunks_exact(range.len());
            for (point, row) in values.chunks_exact_mut(width).zip(rows) {
                point[range.clone()].iter_mut().zip(row).for_each(|(to, from)| *to = *from as f32);
            }
            found = Some((frames, space));
        }
        let (frames, space) = found.unwrap_or_default();
        Self::new(layout, (trajectories, frames), &space, values)
    }

    fn file(&self, split: Split, name: &str) -> String {
        format!("{}_{split}_{name}.npy", self.layout.name)
    }

    fn shape_of(&self, range: &Range<usize>) -> Vec<usize> {
        let mut shape = [&[self.trajectories, self.frames], &self.space[..]].concat();
        if range.len() > 1 {
            shape.push(range.len());
        }
        shape
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static LAYOUT: FieldLayout = FieldLayout {
        name: "test",
        files: &[("a", 0..1), ("b", 1..3)],
        quantities: &[("a", "a", 0..1)],
        space_axes: 2,
        metric: &[1, 1],
        first_blade: 0,
        blades: &[(0, 1.0), (1, 1.0), (2, 1.0)],
        scale: 1.0,
    };

    #[test]
    fn files_are_read_as_they_were_written_and_others_refused() {
        let folder = tempfile::tempdir().unwrap();
        let values = (0..2 * 3 * 4 * 5 * 3).map(|at| (at as f32 * 0.3).sin()).collect();
        let set = FieldSet::new(&LAYOUT, (2, 3), &[4, 5], values).unwrap();
        set.save(folder.path(), Split::Valid).unwrap();
        let b = NpyArray::read(folder.path().join("test_valid_b.npy")).unwrap();
        assert_eq!((b.shape, b.values[1]), (vec![2, 3, 4, 5, 2], f64::from(set.values()[2])));
        assert_eq!(FieldSet::load(&LAYOUT, folder.path(), Split::Valid, 2).unwrap(), set);
        let one = FieldSet::load(&LAYOUT, folder.path(), Split::Valid, 1).unwrap();
        assert_eq!((one.trajectories(), one.values()), (1, &set.values()[..180]));
        let load =
            |split, count| FieldSet::load(&LAYOUT, folder.path(), split, count).unwrap_err().to_string();
        assert!(load(Split::Valid, 3).contains("2 trajectories"));
        assert!(load(Split::Test, 1).contains("test_test_a.npy"));
        std::fs::copy(folder.path().join("test_valid_a.npy"), folder.path().join("test_valid_b.npy"))
            .unwrap();
        assert!(load(Split::Valid, 2).contains("shape"));
        assert!(FieldSet::new(&LAYOUT, (1, 1), &[2, 2], vec![0.0; 11]).is_err());
        assert!(FieldSet::new(&LAYOUT, (1, 1), &[2, 2], vec![f32::NAN; 12]).is_err());
    }
}
