//! Positions added around a field.

use super::prelude::*;

/// What positions beyond the ends of a field hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Padding {
    /// Zeros.
    #[default]
    Zeros,
    /// The field goes on at its other end.
    Circular,
    /// The field is mirrored at its last position, which is not repeated.
    Reflect,
    /// The field is mirrored beyond its last position, which is repeated.
    Symmetric,
}

impl Padding {
    /// The position that one before 0 or from `size` on shows; `None` where it is zero.
    fn source(self, at: isize, size: isize) -> Option<isize> {
        match self {
            _ if (0..size).contains(&at) => Some(at),
            Self::Zeros => None,
            Self::Circular => Some(at.rem_euclid(size)),
            Self::Reflect => Some(if at < 0 { -at } else { 2 * size - 2 - at }),
            Self::Symmetric => Some(if at < 0 { -1 - at } else { 2 * size - 1 - at }),
        }
    }

    /// The most positions that can be added at an end of an axis of `size`.
    fn most(self, size: usize) -> usize {
        match self {
            Self::Zeros => usize::MAX,
            Self::Circular if size > 0 => usize::MAX,
            Self::Circular => 0,
            Self::Reflect => size.saturating_sub(1),
            Self::Symmetric => size,
        }
    }
}

/// A field `[blades, batch, *space, channels]` with `[before, after]` positions added along each axis of space.
///
/// # Errors
/// Another number of axes; more positions than a mirror has.
pub fn pad(x: &Tensor, padding: &[[usize; 2]], mode: Padding) -> Result<Tensor> {
    const NAME: &str = "pad";
    if x.shape().rank() != padding.len() + 3 {
        return refuse(
            NAME,
            format!("`x` has shape {}, and there is padding for {} axes", x.shape(), padding.len()),
        );
    }
    let mut padded = x.clone();
    for (index, &[before, after]) in padding.iter().enumerate() {
        let axis = index + 2;
        let size = x.shape()[axis];
        if before + after == 0 {
            continue;
        }
        if before.max(after) > mode.most(size) {
            return refuse(
                NAME,
                format!(
                    "{before} and {after} positions cannot be mirrored from {size} (axis {index} of space)"
                ),
            );
        }
        // Zeros are one entry more, put at the end first.
        let zeros = mode == Padding::Zeros;
        if zeros {
            let mut shape = padded.shape().to_vec();
            shape[axis] = 1;
            let zero = Tensor::zeros(shape, x.dtype(), &x.device())?;
            padded = crate::concat(&[&padded, &zero], axis)?;
        }
        let entries: Vec<usize> = (-(before as isize)..(size + after) as isize)
            .map(|at| mode.source(at, size as isize).map_or(size, |at| at as usize))
            .collect();
        let index = positions(&entries, size + usize::from(zeros), x)?;
        padded = padded.index_select(axis, &index)?;
    }
    Ok(padded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_shows_the_positions_it_says() {
        let x = Tensor::from_slice(&[1.0f64, 2.0, 3.0], [1, 1, 3, 1], &Device::Cpu).unwrap();
        let padded = |mode| pad(&x, &[[2, 1]], mode).unwrap().to_vec::<f64>().unwrap();
        assert_eq!(padded(Padding::Zeros), [0.0, 0.0, 1.0, 2.0, 3.0, 0.0]);
        assert_eq!(padded(Padding::Circular), [2.0, 3.0, 1.0, 2.0, 3.0, 1.0]);
        assert_eq!(padded(Padding::Reflect), [3.0, 2.0, 1.0, 2.0, 3.0, 2.0]);
        assert_eq!(padded(Padding::Symmetric), [2.0, 1.0, 1.0, 2.0, 3.0, 3.0]);
        assert!(pad(&x, &[[3, 0]], Padding::Reflect).unwrap_err().to_string().contains("mirrored"));
        assert!(pad(&x, &[[1, 1], [1, 1]], Padding::Zeros).is_err());
    }
}
