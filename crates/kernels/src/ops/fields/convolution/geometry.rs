//! Where the taps of a convolution lie.

use crate::{Array, Error, Result};

/// The largest number of spatial axes.
pub(super) const AXES: usize = 3;

/// One spatial axis: output position p and tap t meet input position p·stride + t·dilation − before; positions outside of 0..input read as
/// zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Axis {
    /// Extent of the field that the convolution reads.
    pub input: usize,
    /// Extent of the field that it makes.
    pub output: usize,
    /// Taps of the kernel.
    pub kernel: usize,
    /// Input positions from one output position to the next.
    pub stride: usize,
    /// Input positions from one tap to the next.
    pub dilation: usize,
    /// Zeros before the first input position.
    pub before: usize,
}

impl Axis {
    /// The axis of a convolution over `input` positions with `padding` zeros before and after them: it makes
    /// ⌊(input + before + after − dilation·(kernel − 1) − 1)/stride⌋ + 1 positions, none if the kernel does not fit.
    pub fn convolution(
        input: usize,
        kernel: usize,
        stride: usize,
        dilation: usize,
        padding: [usize; 2],
    ) -> Self {
        let reach = dilation.saturating_mul(kernel.saturating_sub(1)).saturating_add(1);
        let padded = input.saturating_add(padding[0]).saturating_add(padding[1]);
        let output = if padded < reach { 0 } else { (padded - reach) / stride.max(1) + 1 };
        Self { input, output, kernel, stride, dilation, before: padding[0] }
    }
}

/// The axes of a convolution, and how many groups its channels form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Geometry {
    axes: Vec<Axis>,
    groups: usize,
}

impl Geometry {
    /// A geometry of 1 to 3 axes.
    ///
    /// # Errors
    /// Another number of axes; a kernel without taps; a stride, a dilation or a number of groups of 0; sizes beyond 2³¹.
    pub fn new(axes: &[Axis], groups: usize) -> Result<Self> {
        const OPERATION: &str = "field_convolution";
        if !(1..=AXES).contains(&axes.len()) {
            let actual = axes.len().to_string();
            return Err(Error::Argument {
                operation: OPERATION,
                argument: "axes",
                actual,
                expected: "1 to 3",
            });
        }
        for axis in axes {
            let positive = axis.kernel.min(axis.stride).min(axis.dilation) > 0;
            let reach = |a: usize, b: usize| a.saturating_mul(b);
            let furthest = reach(axis.output, axis.stride)
                .saturating_add(reach(axis.kernel, axis.dilation))
                .saturating_add(axis.before)
                .saturating_add(axis.input);
            if !positive || furthest > i32::MAX as usize {
                let actual = format!("{axis:?}");
                let expected = "at least one tap, stride and dilation of at least 1, positions below 2^31";
                return Err(Error::Argument { operation: OPERATION, argument: "axes", actual, expected });
            }
        }
        if groups == 0 {
            let (actual, expected) = ("0".to_owned(), "at least 1");
            return Err(Error::Argument { operation: OPERATION, argument: "groups", actual, expected });
        }
        Ok(Self { axes: axes.to_vec(), groups })
    }

    /// The spatial axes.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// The number of groups of channels.
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// One size of each axis.
    pub fn extents(&self, size: impl Fn(&Axis) -> usize) -> Vec<usize> {
        self.axes.iter().map(size).collect()
    }
}

/// The sizes of the trilinear form.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub batch: usize,
    pub groups: usize,
    pub taps: usize,
    /// Blades and channels of x, then of y.
    pub i: usize,
    pub c: usize,
    pub j: usize,
    pub o: usize,
}

/// One field gathered for each position of another: x for the positions of y, or y for those of x.
pub(super) struct Gather {
    pub sizes: Sizes,
    /// Blades, and channels per group: of the source, and of the target.
    pub source: [usize; 2],
    pub target: [usize; 2],
    /// Positions along the three axes; an axis that the geometry lacks has one.
    pub source_extents: [usize; AXES],
    pub target_extents: [usize; AXES],
    pub taps: [usize; AXES],
    /// The geometry's steps along the three axes, and whether the roles of the fields are exchanged.
    pub stride: [usize; AXES],
    pub dilation: [usize; AXES],
    pub before: [usize; AXES],
    pub adjoint: bool,
    /// For each axis, `[target position · taps + tap]`: the source position, or −1 where there is none.
    pub positions: [Vec<i32>; AXES],
}

impl Sizes {
    pub fn new(geometry: &Geometry, batch: usize, [i, c, j, o]: [usize; 4]) -> Self {
        let taps = geometry.axes.iter().map(|axis| axis.kernel).product();
        Self { batch, groups: geometry.groups, taps, i, c, j, o }
    }

    /// Whether there are several groups, each with one channel on either side.
    pub fn is_depthwise(&self) -> bool {
        self.groups > 1 && self.c == self.groups && self.o == self.groups
    }

    /// x for the positions of y.
    pub fn forward(&self, geometry: &Geometry) -> Gather {
        let position = |axis: &Axis, target: usize, tap: usize| {
            let at = target * axis.stride + tap * axis.dilation;
            (at >= axis.before && at - axis.before < axis.input).then(|| at - axis.before)
        };
        self.gather(geometry, false, position)
    }

    /// y for the positions of x.
    pub fn adjoint(&self, geometry: &Geometry) -> Gather {
        let position = |axis: &Axis, target: usize, tap: usize| {
            let distance = (target + axis.before).checked_sub(tap * axis.dilation)?;
            (distance.is_multiple_of(axis.stride) && distance / axis.stride < axis.output)
                .then(|| distance / axis.stride)
        };
        self.gather(geometry, true, position)
    }

    fn gather(
        &self,
        geometry: &Geometry,
        adjoint: bool,
        position: impl Fn(&Axis, usize, usize) -> Option<usize>,
    ) -> Gather {
        let x = [self.i, self.c / self.groups];
        let y = [self.j, self.o / self.groups];
        let (source, target) = if adjoint { (y, x) } else { (x, y) };
        let mut gather = Gather {
            sizes: *self,
            source,
            target,
            source_extents: [1; AXES],
            target_extents: [1; AXES],
            taps: [1; AXES],
            stride: [1; AXES],
            dilation: [1; AXES],
            before: [0; AXES],
            adjoint,
            positions: [vec![0], vec![0], vec![0]],
        };
        let missing = AXES - geometry.axes.len();
        for (index, axis) in geometry.axes.iter().enumerate() {
            let at = missing + index;
            let (from, to) = if adjoint { (axis.output, axis.input) } else { (axis.input, axis.output) };
            gather.source_extents[at] = from;
            gather.target_extents[at] = to;
            gather.taps[at] = axis.kernel;
            gather.stride[at] = axis.stride;
            gather.dilation[at] = axis.dilation;
            gather.before[at] = axis.before;
            let taps = |target| (0..axis.kernel).map(move |tap| (target, tap));
            gather.positions[at] = (0..to)
                .flat_map(taps)
                .map(|(target, tap)| position(axis, target, tap).map_or(-1, |at| at as i32))
                .collect();
        }
        gather
    }
}

impl Gather {
    /// The kernel `[J, O, I, *taps, C/g]` with its groups outermost: `[groups, J, O/g, I, taps, C/g]`, or `[groups, I, C/g, J, taps, O/g]` for
    /// the adjoint; with one channel in every group, `[J, I, taps, groups]` or `[I, J, taps, groups]`.
    pub fn by_group(&self, w: &Array) -> Result<Array> {
        let axes = match (self.is_depthwise(), self.adjoint) {
            (true, false) => [0, 3, 4, 1, 2, 5],
            (true, true) => [3, 0, 4, 1, 2, 5],
            (false, false) => [1, 0, 2, 3, 4, 5],
            (false, true) => [1, 3, 5, 0, 4, 2],
        };
        self.permuted(w, axes)
    }

    /// The kernel of one group by taps: `[target channels, taps, source channels]`, over the channels of all blades.
    pub fn by_tap(&self, w: &Array) -> Result<Array> {
        let axes = if self.adjoint { [1, 3, 5, 4, 0, 2] } else { [1, 0, 2, 4, 3, 5] };
        self.permuted(w, axes)
    }

    /// The kernel as `[J, groups, O/g, I, taps, C/g]`, its axes in another order, contiguous.
    fn permuted(&self, w: &Array, axes: [usize; 6]) -> Result<Array> {
        let Sizes { groups, taps, i, c, j, o, .. } = self.sizes;
        w.contiguous()?.reshape([j, groups, o / groups, i, taps, c / groups])?.permute(&axes)?.contiguous()
    }

    /// Whether every group has one channel on either side.
    pub fn is_depthwise(&self) -> bool {
        self.sizes.is_depthwise()
    }

    /// Positions of the target over all samples.
    pub fn rows(&self) -> usize {
        self.sizes.batch * self.target_extents.iter().product::<usize>()
    }

    /// Positions of the source over all samples.
    pub fn source_rows(&self) -> usize {
        self.sizes.batch * self.source_extents.iter().product::<usize>()
    }

    /// Whether every position of the target has one tap, at the same position of the source.
    pub fn is_pointwise(&self) -> bool {
        let same = |table: &Vec<i32>| table.iter().enumerate().all(|(at, &source)| at as i32 == source);
        self.sizes.taps == 1 && self.source_extents == self.target_extents && self.positions.iter().all(same)
    }

    /// Calls `each` with the tap and the source row, if there is one, of every tap of target row `row`.
    #[inline(always)]
    pub fn each_tap(&self, row: usize, mut each: impl FnMut(usize, Option<usize>)) {
        let [e0, e1, e2] = self.target_extents;
        let [_, s1, s2] = self.source_extents;
        let (t2, rest) = (row % e2, row / e2);
        let (t1, rest) = (rest % e1, rest / e1);
        let (t0, sample) = (rest % e0, rest / e0);
        let [k0, k1, k2] = self.taps;
        let along = |axis: usize, target: usize, taps: usize| &self.positions[axis][target * taps..][..taps];
        let (p0, p1, p2) = (along(0, t0, k0), along(1, t1, k1), along(2, t2, k2));
        let mut tap = 0;
        for &a in p0 {
            let first = (a >= 0).then(|| sample * self.source_extents[0] + a as usize);
            for &b in p1 {
                let second = first.filter(|_| b >= 0).map(|first| first * s1 + b as usize);
                for &c in p2 {
                    each(tap, second.filter(|_| c >= 0).map(|second| second * s2 + c as usize));
                    tap += 1;
                }
            }
        }
    }
}
