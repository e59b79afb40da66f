//! Smoke that rises in a box: incompressible flow on a staggered grid.

use super::poisson::{Boundary, Poisson};

/// Physical parameters and time step of the flow.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Flow {
    /// Length of the side of the box.
    pub side: f64,
    /// Kinematic viscosity ν.
    pub viscosity: f64,
    /// Acceleration along the second axis for each unit of smoke.
    pub buoyancy: f64,
    /// Length of a time step.
    pub step: f64,
    /// The boundary conditions of the box.
    pub boundary: Boundary,
}

impl Flow {
    /// The published setting: a box of 32 with walls, ν = 0.01, buoyancy 0.5, steps of 1.5.
    pub const PUBLISHED: Self =
        Self { side: 32.0, viscosity: 0.01, buoyancy: 0.5, step: 1.5, boundary: Boundary::Walls };
}

/// Smoke and velocities on a grid of n × n cells, `[x, y]` row-major: smoke in the centres of cells, the two velocities on their left and
/// lower faces.
///
/// ∂v/∂t + v·∇v = −∇p + νΔv + (0, b s), ∇·v = 0, ∂s/∂t + v·∇s = 0. With walls, the faces at index 0 are walls. Velocities are 0 there and
/// outside; the component parallel to a wall is 0 half a cell beyond it. Smoke is extrapolated as a constant beyond the edge.
#[derive(Clone)]
pub struct Smoke {
    flow: Flow,
    n: usize,
    poisson: Poisson,
    smoke: Vec<f64>,
    velocity: [Vec<f64>; 2],
}

impl std::fmt::Debug for Smoke {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Smoke").field("flow", &self.flow).field("n", &self.n).finish_non_exhaustive()
    }
}

impl Smoke {
    /// Smoke `[n, n]` in a flow with these velocities, which must be divergence-free, and 0 on walls.
    ///
    /// # Errors
    /// [`Error::Argument`](gradewise_nn::Error::Argument) for arrays of other lengths than n².
    pub fn new(flow: Flow, n: usize, smoke: Vec<f64>, velocity: [Vec<f64>; 2]) -> gradewise_nn::Result<Self> {
        let lengths = [smoke.len(), velocity[0].len(), velocity[1].len()];
        if n == 0 || lengths != [n * n; 3] {
            return Err(gradewise_nn::Error::Argument {
                operation: "Smoke",
                argument: "fields",
                actual: format!("{lengths:?} values"),
                expected: format!("a grid, and {n} × {n} values of each"),
            });
        }
        Ok(Self { flow, n, poisson: Poisson::new(n, flow.boundary), smoke, velocity })
    }

    /// Smoke in the centres of the cells.
    pub fn smoke(&self) -> &[f64] {
        &self.smoke
    }

    /// Velocities: the first on the left faces of the cells, the second on the lower ones.
    pub fn velocity(&self) -> &[Vec<f64>; 2] {
        &self.velocity
    }

    fn dx(&self) -> f64 {
        self.flow.side / self.n as f64
    }

    /// Advances by one time step: semi-Lagrangian advection along the old velocity, buoyancy of the new smoke, diffusion, and projection
    /// onto divergence-free fields, in this order.
    pub fn advance(&mut self) {
        let carried = self.carried_smoke();
        let mut velocity = [0, 1].map(|axis| self.carried_velocity(axis));
        let lift = 0.5 * self.flow.step * self.flow.buoyancy;
        let (n, first) = (self.n, self.first_face());
        for i in 0..n {
            for j in first..n {
                let below = carried[i * n + (j + n - 1) % n];
                velocity[1][i * n + j] += lift * (below + carried[i * n + j]);
            }
        }
        self.smoke = carried;
        self.velocity = velocity;
        self.diffuse();
        self.project();
    }

    /// The index of the first face that is not a wall.
    fn first_face(&self) -> usize {
        usize::from(self.flow.boundary == Boundary::Walls)
    }

    /// The velocity component on face (i, j); 0 beyond walls.
    fn face(&self, axis: usize, i: isize, j: isize) -> f64 {
        at(&self.velocity[axis], self.n, self.flow.boundary, i, j)
    }

    /// Interpolates a component of the velocity at (x, y), in cells from the corner of the box.
    fn sample_velocity(&self, axis: usize, x: f64, y: f64) -> f64 {
        let (x, y) = if axis == 0 { (x, y - 0.5) } else { (x - 0.5, y) };
        bilinear(x, y, |i, j| self.face(axis, i, j))
    }

    fn sample_smoke(&self, x: f64, y: f64) -> f64 {
        let n = self.n as isize;
        bilinear(x - 0.5, y - 0.5, |i, j| {
            let [i, j] = [i, j].map(|index| match self.flow.boundary {
                Boundary::Walls => index.clamp(0, n - 1),
                Boundary::Periodic => index.rem_euclid(n),
            });
            self.smoke[(i * n + j) as usize]
        })
    }

    fn carried_smoke(&self) -> Vec<f64> {
        let cells = self.flow.step / self.dx();
        let cell = |k: usize| {
            let (i, j) = ((k / self.n) as isize, (k % self.n) as isize);
            let u = 0.5 * (self.face(0, i, j) + self.face(0, i + 1, j));
            let v = 0.5 * (self.face(1, i, j) + self.face(1, i, j + 1));
            self.sample_smoke(i as f64 + 0.5 - cells * u, j as f64 + 0.5 - cells * v)
        };
        (0..self.n * self.n).map(cell).collect()
    }

    fn carried_velocity(&self, axis: usize) -> Vec<f64> {
        let (cells, first) = (self.flow.step / self.dx(), self.first_face());
        let face = |k: usize| {
            let (row, column) = (k / self.n, k % self.n);
            if [row, column][axis] < first {
                return 0.0;
            }
            let (i, j) = (row as isize, column as isize);
            // The other component at this face, interpolated from the four faces around it.
            let other = |di: isize, dj: isize| self.face(1 - axis, i + di, j + dj);
            let own = self.face(axis, i, j);
            let (x, y) = (i as f64, j as f64);
            if axis == 0 {
                let v = 0.25 * (other(-1, 0) + other(0, 0) + other(-1, 1) + other(0, 1));
                self.sample_velocity(0, x - cells * own, y + 0.5 - cells * v)
            } else {
                let u = 0.25 * (other(0, -1) + other(0, 0) + other(1, -1) + other(1, 0));
                self.sample_velocity(1, x + 0.5 - cells * u, y - cells * own)
            }
        };
        (0..self.n * self.n).map(face).collect()
    }

    fn diffuse(&mut self) {
        let weight = self.flow.viscosity * self.flow.step / (self.dx() * self.dx());
        let (n, first) = (self.n, self.first_face());
        for axis in 0..2 {
            let diffused = |k: usize| {
                if [k / n, k % n][axis] < first {
                    return 0.0;
                }
                let (i, j) = ((k / n) as isize, (k % n) as isize);
                let around = self.face(axis, i + 1, j)
                    + self.face(axis, i - 1, j)
                    + self.face(axis, i, j + 1)
                    + self.face(axis, i, j - 1);
                let own = self.face(axis, i, j);
                own + weight * (around - 4.0 * own)
            };
            self.velocity[axis] = (0..n * n).map(diffused).collect();
        }
    }

    fn project(&mut self) {
        let (n, dx, first) = (self.n, self.dx(), self.first_face());
        let pressure = self.poisson.solve(&self.divergence(), dx);
        for (axis, stride) in [(0, n), (1, 1)] {
            for k in 0..n * n {
                let (row, column) = (k / n, k % n);
                let index = [row, column][axis];
                if index >= first {
                    let before = if index == 0 { k + (n - 1) * stride } else { k - stride };
                    self.velocity[axis][k] -= (pressure[k] - pressure[before]) / dx;
                }
            }
        }
    }

    /// The divergence of the velocity in each cell.
    pub fn divergence(&self) -> Vec<f64> {
        let cell = |k: usize| {
            let (i, j) = ((k / self.n) as isize, (k % self.n) as isize);
            let out =
                self.face(0, i + 1, j) - self.face(0, i, j) + self.face(1, i, j + 1) - self.face(1, i, j);
            out / self.dx()
        };
        (0..self.n * self.n).map(cell).collect()
    }
}

fn at(values: &[f64], n: usize, boundary: Boundary, i: isize, j: isize) -> f64 {
    let inside = 0..n as isize;
    if inside.contains(&i) && inside.contains(&j) {
        return values[i as usize * n + j as usize];
    }
    match boundary {
        Boundary::Walls => 0.0,
        Boundary::Periodic => {
            values[i.rem_euclid(n as isize) as usize * n + j.rem_euclid(n as isize) as usize]
        }
    }
}

/// Interpolates between the four grid points around (x, y).
fn bilinear(x: f64, y: f64, value: impl Fn(isize, isize) -> f64) -> f64 {
    let (left, low) = (x.floor(), y.floor());
    let (fx, fy) = (x - left, y - low);
    let (i, j) = (left as isize, low as isize);
    let lower = (1.0 - fx) * value(i, j) + fx * value(i + 1, j);
    let upper = (1.0 - fx) * value(i, j + 1) + fx * value(i + 1, j + 1);
    (1.0 - fy) * lower + fy * upper
}

#[cfg(test)]
mod tests;
