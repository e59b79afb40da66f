//! Maxwell's equations in space by Yee's scheme.

/// The boundary conditions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Edges {
    /// As in the published data: differences across the ends are 0, then the first plane of E is overwritten by the last, and the last of H by
    /// the first. The period is one cell short of the grid.
    Published,
    /// Periodic: the neighbour of the last cell is the first one.
    Periodic,
}

/// A sheet on which a source sets the fields: E along one axis and H along another, to A sin(2πq/P + φ) in step q.
#[derive(Clone, PartialEq, Debug)]
pub struct Source {
    /// The first cell.
    pub start: [usize; 3],
    /// Cells along each axis.
    pub extent: [usize; 3],
    /// The axis of E.
    pub electric: usize,
    /// The axis of H.
    pub magnetic: usize,
    /// A.
    pub amplitude: f64,
    /// P, in steps; at least 1.
    pub period: u32,
    /// φ.
    pub phase: f64,
}

impl Source {
    fn value(&self, step: u64) -> f64 {
        let turns = step as f64 / f64::from(self.period.max(1));
        self.amplitude * (2.0 * std::f64::consts::PI * turns + self.phase).sin()
    }
}

/// E and H on a grid `[x, y, z]`, in units in which both have the same dimension (E times √ε₀, H times √μ₀): E on the edges of cells, H on
/// their faces. The medium is the same everywhere.
#[derive(Clone, Debug)]
pub struct Yee {
    extents: [usize; 3],
    edges: Edges,
    courant: f64,
    permittivity: f64,
    electric: [Vec<f64>; 3],
    magnetic: [Vec<f64>; 3],
    sources: Vec<Source>,
    steps: u64,
}

impl Yee {
    /// A grid without fields. `courant` is cΔt/Δx, below 1/√3 times the refractive index; sources that reach beyond the grid are cut off.
    pub fn new(
        extents: [usize; 3],
        edges: Edges,
        courant: f64,
        permittivity: f64,
        sources: Vec<Source>,
    ) -> Self {
        let zeros = || vec![0.0; extents.iter().product()];
        let (electric, magnetic) = ([(); 3].map(|()| zeros()), [(); 3].map(|()| zeros()));
        Self { extents, edges, courant, permittivity, electric, magnetic, sources, steps: 0 }
    }

    /// The components of E.
    pub fn electric(&self) -> &[Vec<f64>; 3] {
        &self.electric
    }

    /// The components of H.
    pub fn magnetic(&self) -> &[Vec<f64>; 3] {
        &self.magnetic
    }

    /// Mutable E and H.
    pub fn fields_mut(&mut self) -> (&mut [Vec<f64>; 3], &mut [Vec<f64>; 3]) {
        (&mut self.electric, &mut self.magnetic)
    }

    /// The extents of the grid.
    pub fn extents(&self) -> [usize; 3] {
        self.extents
    }

    /// Advances by one time step. With [`Edges::Published`], E is updated first, then H. With [`Edges::Periodic`], H is updated first, so
    /// that E and H are half a step apart, as in a plane wave that starts with H at −½.
    pub fn advance(&mut self) {
        match self.edges {
            Edges::Published => {
                self.advance_electric();
                for axis in 0..3 {
                    let last = self.extents[axis] - 1;
                    self.electric.iter_mut().for_each(|field| copy_plane(field, self.extents, axis, last, 0));
                }
                self.emit();
                self.advance_magnetic();
                for axis in 0..3 {
                    let last = self.extents[axis] - 1;
                    self.magnetic.iter_mut().for_each(|field| copy_plane(field, self.extents, axis, 0, last));
                }
                self.emit_magnetic();
            }
            Edges::Periodic => {
                self.advance_magnetic();
                self.emit_magnetic();
                self.advance_electric();
                self.emit();
            }
        }
        self.steps += 1;
    }

    fn advance_electric(&mut self) {
        let weight = self.courant / self.permittivity;
        for axis in 0..3 {
            let (next, last) = ((axis + 1) % 3, (axis + 2) % 3);
            let Self { electric, magnetic, extents, edges, .. } = self;
            let to = &mut electric[axis];
            add_difference(to, &magnetic[last], *extents, (next, Towards::Before), weight, *edges);
            add_difference(to, &magnetic[next], *extents, (last, Towards::Before), -weight, *edges);
        }
    }

    fn advance_magnetic(&mut self) {
        for axis in 0..3 {
            let (next, last) = ((axis + 1) % 3, (axis + 2) % 3);
            let Self { electric, magnetic, extents, edges, courant, .. } = self;
            let to = &mut magnetic[axis];
            add_difference(to, &electric[last], *extents, (next, Towards::After), -*courant, *edges);
            add_difference(to, &electric[next], *extents, (last, Towards::After), *courant, *edges);
        }
    }

    fn emit(&mut self) {
        for source in &self.sources {
            set(&mut self.electric[source.electric], self.extents, source, source.value(self.steps));
        }
    }

    fn emit_magnetic(&mut self) {
        for source in &self.sources {
            set(&mut self.magnetic[source.magnetic], self.extents, source, source.value(self.steps));
        }
    }
}

/// The neighbour with which a difference is taken.
#[derive(Clone, Copy, PartialEq)]
enum Towards {
    After,
    Before,
}

fn stride(extents: [usize; 3], axis: usize) -> usize {
    extents[axis + 1..].iter().product()
}

/// Adds `weight` times the difference of neighbours of `from` along an axis; at the end that has no neighbour, adds nothing or the
/// difference with the opposite end.
fn add_difference(
    to: &mut [f64],
    from: &[f64],
    extents: [usize; 3],
    (axis, towards): (usize, Towards),
    weight: f64,
    edges: Edges,
) {
    let stride = stride(extents, axis);
    let block = stride * extents[axis];
    for (to, from) in to.chunks_exact_mut(block).zip(from.chunks_exact(block)) {
        let (lower, upper) = (&from[..block - stride], &from[stride..]);
        let (inner, end) = match towards {
            Towards::After => to.split_at_mut(block - stride),
            Towards::Before => {
                let (end, inner) = to.split_at_mut(stride);
                (inner, end)
            }
        };
        for ((to, lower), upper) in inner.iter_mut().zip(lower).zip(upper) {
            *to += weight * (upper - lower);
        }
        if edges == Edges::Periodic {
            for ((to, first), last) in end.iter_mut().zip(&from[..stride]).zip(&from[block - stride..]) {
                *to += weight * (first - last);
            }
        }
    }
}

fn copy_plane(field: &mut [f64], extents: [usize; 3], axis: usize, from: usize, to: usize) {
    let stride = stride(extents, axis);
    for block in field.chunks_exact_mut(stride * extents[axis]) {
        block.copy_within(from * stride..(from + 1) * stride, to * stride);
    }
}

fn set(field: &mut [f64], extents: [usize; 3], source: &Source, value: f64) {
    let range = |axis: usize| {
        let end = (source.start[axis] + source.extent[axis]).min(extents[axis]);
        source.start[axis].min(end)..end
    };
    for x in range(0) {
        for y in range(1) {
            let row = (x * extents[1] + y) * extents[2];
            range(2).for_each(|z| field[row + z] = value);
        }
    }
}

#[cfg(test)]
mod tests;
