//! Pairs of structures that networks of low rank, few rounds or low body order cannot tell apart.
//!
//! Edges are those of the publications, not all pairs within a cutoff, so that what a pair asks for is one thing alone. Lengths are in Å, and
//! all atoms are carbon.

use crate::data::atoms::{Frame, Neighbourhood, Neighbours, Vector};
use std::f64::consts::{PI, TAU};

/// Atoms, and the pairs of them that send messages to each other.
struct Structure {
    positions: Vec<Vector>,
    edges: Vec<[usize; 2]>,
}

impl Structure {
    /// The first atom with edges to all others.
    fn star(neighbours: impl IntoIterator<Item = Vector>) -> Self {
        let positions: Vec<Vector> = std::iter::once([0.0; 3]).chain(neighbours).collect();
        let edges = (1..positions.len()).map(|atom| [0, atom]).collect();
        Self { positions, edges }
    }

    fn neighbourhood(self) -> Neighbourhood {
        let mut neighbours = Neighbours::default();
        for [a, b] in self.edges {
            for (receiver, sender) in [(a, b), (b, a)] {
                neighbours.receivers.push(receiver as u32);
                neighbours.senders.push(sender as u32);
                neighbours.images.push([0; 3]);
            }
        }
        let numbers = vec![6; self.positions.len()];
        Neighbourhood::of(Frame { numbers, positions: self.positions, ..Frame::default() }, neighbours)
    }
}

fn pair(of: impl Fn(bool) -> Structure) -> [Neighbourhood; 2] {
    [of(false).neighbourhood(), of(true).neighbourhood()]
}

fn scaled(factor: f64, v: Vector) -> Vector {
    v.map(|x| factor * x)
}

/// A chain of `k` atoms with an atom beside either end, both on one side or on opposite ones (Joshi et al. 2023, figure 4).
pub fn chain(k: usize) -> [Neighbourhood; 2] {
    let last = 5.0 * (k.max(1) - 1) as f64;
    pair(|opposite| {
        let side = if opposite { 4.0 } else { -4.0 };
        let ends = ([-4.0, -3.0, 0.0], [side, last + 3.0, 0.0]);
        let inner = (0..k).map(|i| [0.0, 5.0 * i as f64, 0.0]);
        let positions: Vec<Vector> =
            std::iter::once(ends.0).chain(inner).chain([ends.1]).map(|v| scaled(0.3, v)).collect();
        let edges = (1..positions.len()).map(|atom| [atom - 1, atom]).collect();
        Structure { positions, edges }
    })
}

/// Two bound atoms, each with a cone of `fold` neighbours about their bond, turned against each other by two angles: a torsion. The bond
/// carries nothing but tensors about its axis, and those of a cone tell its angle only from rank `fold` on: what Joshi et al. 2023 (table 2)
/// ask of the features of one such ring, asked of the energy.
pub fn rotor(fold: usize) -> [Neighbourhood; 2] {
    pair(|turned| {
        let twist = TAU / fold as f64 * if turned { 0.35 } else { 0.1 };
        let cone = |angle: f64, z: f64| {
            (0..fold).map(move |i| {
                let angle = angle + TAU * i as f64 / fold as f64;
                [1.1 * angle.cos(), 1.1 * angle.sin(), z]
            })
        };
        let positions: Vec<Vector> =
            [[0.0; 3], [0.0, 0.0, 1.5]].into_iter().chain(cone(0.0, -0.4)).chain(cone(twist, 1.9)).collect();
        let to_cones = (0..2 * fold).map(|i| [i / fold, 2 + i]);
        Structure { positions, edges: std::iter::once([0, 1]).chain(to_cones).collect() }
    })
}

/// A regular polyhedron.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Polyhedron {
    /// 4 corners
    Tetrahedron,
    /// 6 corners
    Octahedron,
    /// 8 corners
    Cube,
    /// 12 corners
    Icosahedron,
    /// 20 corners
    Dodecahedron,
}

impl Polyhedron {
    /// All five.
    pub const ALL: [Self; 5] =
        [Self::Tetrahedron, Self::Octahedron, Self::Cube, Self::Icosahedron, Self::Dodecahedron];

    /// The lowest rank above 0 of a tensor that its corners add up to (Cen et al. 2024, arXiv:2410.11443).
    pub fn rank(self) -> usize {
        match self {
            Self::Tetrahedron => 3,
            Self::Octahedron | Self::Cube => 4,
            Self::Icosahedron | Self::Dodecahedron => 6,
        }
    }

    /// Unit vectors to the corners.
    fn corners(self) -> Vec<Vector> {
        let golden = f64::midpoint(1.0, 5f64.sqrt());
        let signs = [-1.0, 1.0];
        let turned = |v: Vector| [v, [v[1], v[2], v[0]], [v[2], v[0], v[1]]];
        let cube = || signs.iter().flat_map(move |&x| signs.map(|y| signs.map(|z| [x, y, z]))).flatten();
        let rectangles = |a: f64, b: f64| {
            signs.into_iter().flat_map(move |x| signs.map(|y| turned([0.0, a * x, b * y]))).flatten()
        };
        let all: Vec<Vector> = match self {
            Self::Tetrahedron => cube().filter(|v| v.iter().product::<f64>() > 0.0).collect(),
            Self::Octahedron => signs.into_iter().flat_map(|x| turned([x, 0.0, 0.0])).collect(),
            Self::Cube => cube().collect(),
            Self::Icosahedron => rectangles(1.0, golden).collect(),
            Self::Dodecahedron => cube().chain(rectangles(golden.recip(), golden)).collect(),
        };
        let unit = |v: Vector| scaled(v.iter().map(|x| x * x).sum::<f64>().sqrt().recip(), v);
        all.into_iter().map(unit).collect()
    }
}

/// An atom in the centre of two polyhedra of one kind and different size, the larger turned by two rotations.
pub fn polyhedra(polyhedron: Polyhedron) -> [Neighbourhood; 2] {
    pair(|turned| {
        let (angle, axis) = if turned { (0.9, [2.0, -1.0, 1.0]) } else { (0.4, [1.0, 2.0, 3.0]) };
        let corners = polyhedron.corners();
        let outer = corners.iter().map(|&v| scaled(1.9, rotated(v, axis, angle)));
        Structure::star(corners.iter().map(|&v| scaled(1.2, v)).chain(outer))
    })
}

/// Rotation about an axis of any length (Rodrigues).
fn rotated(v: Vector, axis: Vector, angle: f64) -> Vector {
    let n = scaled(axis.iter().map(|x| x * x).sum::<f64>().sqrt().recip(), axis);
    let (sin, cos) = angle.sin_cos();
    let along: f64 = (0..3).map(|k| n[k] * v[k]).sum();
    let across = [n[1] * v[2] - n[2] * v[1], n[2] * v[0] - n[0] * v[2], n[0] * v[1] - n[1] * v[0]];
    std::array::from_fn(|k| cos * v[k] + sin * across[k] + (1.0 - cos) * along * n[k])
}

/// Two neighbours at equal distances and other angles: equal to descriptors of two bodies.
pub fn two_body() -> [Neighbourhood; 2] {
    pair(|other| {
        let second = if other { [-5.0, 0.0, 0.0] } else { [3.0, 0.0, 4.0] };
        Structure::star([[5.0, 0.0, 0.0], second].map(|v| scaled(0.3, v)))
    })
}

/// Equal sets of distances and angles: equal to descriptors of three bodies (Pozdnyakov et al. 2020, doi:10.1103/PhysRevLett.125.166001,
/// figure 1 b).
pub fn three_body() -> [Neighbourhood; 2] {
    pair(|other| {
        let side = if other { -5.0 } else { 5.0 };
        let neighbours = [[5.0, 0.0, 5.0], [5.0, 5.0, 5.0], [-5.0, -5.0, 5.0], [0.0, side, 5.0]];
        Structure::star(neighbours.map(|v| scaled(0.25, v)))
    })
}

/// Azimuths of three points of a circle of radius 5 about the y axis, as x and z. No two sides are equal: with an isosceles triangle, as in the
/// programs of Joshi et al. 2023, both structures of the following pairs are one, turned by half a turn.
const TRIANGLE: [[f64; 2]; 3] = [[3.0, -4.0], [0.0, 5.0], [-4.0, -3.0]];

/// Equal sets of distances, angles and tetrahedra, whose handedness does not count: equal to descriptors of four bodies (after figure 2 f).
pub fn four_body() -> [Neighbourhood; 2] {
    pair(|other| {
        let triangle = |y: f64| TRIANGLE.map(|[x, z]| [x, y, z]);
        let turned = triangle(-2.0).map(|v| rotated(v, [0.0, 1.0, 0.0], PI / 5.0));
        let side = if other { -5.0 } else { 5.0 };
        let neighbours = triangle(2.0).into_iter().chain(turned).chain([[0.0, side, 0.0]]);
        Structure::star(neighbours.map(|v| scaled(0.3, v)))
    })
}

/// A structure and its mirror image, which only handedness tells apart (after figure 2 e).
pub fn mirrored() -> [Neighbourhood; 2] {
    pair(|other| {
        let side = if other { -5.0 } else { 5.0 };
        let neighbours = TRIANGLE.map(|[x, z]| [x, 0.0, z]).into_iter().chain([[0.0, side, 0.0]]);
        Structure::star(neighbours.map(|v| scaled(0.3, v)))
    })
}
