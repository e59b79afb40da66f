//! The algebra, and the linear maps of multivectors that are equivariant under its group.

use gradewise_core::{Algebra, Signature};
use gradewise_kernels::ops::clifford::{
    equi_linear::{Entry, Maps},
    table_product::{Table, TableTerm},
};
use gradewise_nn::{Error, Result};
use std::sync::Arc;

/// The algebra of a geometric network and the group it is equivariant under.
///
/// Linear maps that commute with the whole Pin group act on each grade. A null generator e₀, which is invariant under every motion, allows
/// maps of e₀x in addition. In an oriented space, maps of x times the pseudoscalar take their place, and the maps no longer commute with
/// reflections. The coefficients of the maps are in the published order (Brehmer et al. 2023, arXiv:2305.18415; Spinner et al. 2024,
/// arXiv:2405.14806): first the grades, then the grades that are multiplied. With a null generator each map has Frobenius norm 1; otherwise
/// its entries are 1 and −1.
#[derive(Clone, Debug)]
pub struct Space {
    algebra: Algebra,
    is_oriented: bool,
    layout: Arc<Layout>,
}

/// What layers need of an algebra, by planes of features.
#[derive(Debug)]
struct Layout {
    /// The blade of each plane: pairs of blades that the maps join, the scalar first.
    order: Vec<u16>,
    maps: Maps,
    geometric: Arc<Table>,
    regressive: Arc<Table>,
}

impl Space {
    /// Projective geometric algebra of space (points, lines, planes, motions): Cl(3,0,1) under E(3), reflections included. Nine linear
    /// maps: five of grades, four of e₀x.
    pub fn projective() -> Self {
        Self::new(Signature::PGA3).unwrap_or_else(|_| unreachable!("one null generator"))
    }

    /// Space-time: Cl(1,3) under proper Lorentz transformations. Ten linear maps: five of grades, five of x times the pseudoscalar.
    pub fn space_time() -> Self {
        Self::oriented(Signature::STA).unwrap_or_else(|_| unreachable!("no null generators"))
    }

    /// The space of `signature` under its whole Pin group.
    ///
    /// # Errors
    /// More than one null generator; no generators, or more than five.
    pub fn new(signature: Signature) -> Result<Self> {
        let algebra = Algebra::new(signature)?;
        let joining = match signature.r {
            0 => None,
            1 => algebra.blade_of_mask(1 << (algebra.dimension() - 1)),
            more => {
                return Err(Error::Argument {
                    operation: "Space",
                    argument: "signature",
                    actual: format!("{more} null generators"),
                    expected: "at most one: motions mix several".to_owned(),
                });
            }
        };
        Self::of(algebra, joining, false)
    }

    /// The space of `signature`, which has no null generators, with orientation: equivariance only under even versors.
    ///
    /// # Errors
    /// Null generators; no generators, or more than five.
    pub fn oriented(signature: Signature) -> Result<Self> {
        if signature.r != 0 {
            return Err(Error::Argument {
                operation: "Space",
                argument: "signature",
                actual: format!("{} null generators", signature.r),
                expected: "none: their pseudoscalar sends half of everything to zero".to_owned(),
            });
        }
        let algebra = Algebra::new(signature)?;
        let pseudoscalar = algebra.blade_count() - 1;
        Self::of(algebra, Some(pseudoscalar), true)
    }

    fn of(algebra: Algebra, joining: Option<usize>, is_oriented: bool) -> Result<Self> {
        if !(1..=5).contains(&algebra.dimension()) {
            return Err(Error::Argument {
                operation: "Space",
                argument: "signature",
                actual: format!("{} generators", algebra.dimension()),
                expected: "1 to 5".to_owned(),
            });
        }
        let layout = Arc::new(Layout::new(&algebra, joining, is_oriented)?);
        Ok(Self { algebra, is_oriented, layout })
    }

    /// The algebra.
    pub fn algebra(&self) -> &Algebra {
        &self.algebra
    }

    /// Whether orientation is seen: linear maps multiply by the pseudoscalar, and mix it with scalars.
    pub fn is_oriented(&self) -> bool {
        self.is_oriented
    }

    /// Whether the algebra is Cl(3,0,1), whose trivectors are points with distances between them.
    pub fn has_points(&self) -> bool {
        self.algebra.signature() == Signature::PGA3
    }

    /// The number of linear maps of one multivector.
    pub fn map_count(&self) -> usize {
        self.layout.maps.count()
    }

    pub(crate) fn blades(&self) -> usize {
        self.algebra.blade_count()
    }

    pub(crate) fn maps(&self) -> &Maps {
        &self.layout.maps
    }

    /// The blade of each plane of features.
    pub(crate) fn order(&self) -> &[u16] {
        &self.layout.order
    }

    /// The planes of blades that are given as bits of their generators.
    pub(crate) fn planes<const N: usize>(&self, masks: [u16; N]) -> Result<[usize; N]> {
        let plane = |mask: u16| {
            let blade = self.algebra.blade_of_mask(mask)?;
            self.layout.order.iter().position(|&other| usize::from(other) == blade)
        };
        let mut found = [0; N];
        for (place, mask) in found.iter_mut().zip(masks) {
            *place = plane(mask).ok_or_else(|| Error::Argument {
                operation: "Space",
                argument: "signature",
                actual: format!("{}, without the blade {mask:#b}", self.algebra.signature()),
                expected: format!("{}", Signature::PGA3),
            })?;
        }
        Ok(found)
    }

    /// The grade of each plane.
    pub(crate) fn grades(&self) -> Vec<usize> {
        let grades = self.algebra.grades();
        self.order().iter().map(|&blade| grades[usize::from(blade)].into()).collect()
    }

    /// The scalar part of reverse(blade)·blade for each plane.
    pub(crate) fn factors(&self) -> Vec<f64> {
        let squares = self.algebra.squared_norms();
        self.order().iter().map(|&blade| f64::from(squares[usize::from(blade)])).collect()
    }

    /// The geometric product of planes; without results of grade 2 unless `bivectors`.
    pub(crate) fn geometric(&self, bivectors: bool) -> Arc<Table> {
        let table = &self.layout.geometric;
        if bivectors {
            return Arc::clone(table);
        }
        let grades = self.grades();
        let kept = table.terms().filter(|term| grades[usize::from(term.out)] != 2);
        Arc::new(Table::new(table.a, table.b, table.out, kept))
    }

    /// The published join of planes, dual(dual(x) ∧ dual(y)): beside the regressive product it has the dual once more in place of its
    /// inverse, and the pseudoscalar with the other sign.
    pub(crate) fn join(&self) -> Arc<Table> {
        let (table, grades) = (&self.layout.regressive, self.grades());
        let turned = table.terms().map(|term| {
            let is_even = grades[usize::from(term.out)].is_multiple_of(2);
            TableTerm { sign: if is_even { -term.sign } else { term.sign }, ..term }
        });
        Arc::new(Table::new(table.a, table.b, table.out, turned))
    }
}

impl Layout {
    fn new(algebra: &Algebra, joining: Option<usize>, is_oriented: bool) -> Result<Self> {
        let (blades, grades) = (algebra.blade_count(), algebra.grades());
        // For each blade the one that it becomes, and the sign.
        let joined: Vec<Option<(usize, i8)>> = (0..blades)
            .map(|blade| {
                let (left, right) = if is_oriented { (blade, joining?) } else { (joining?, blade) };
                Some(algebra.blade_product(left, right)).filter(|(_, sign)| *sign != 0)
            })
            .collect();
        let mut pairs: Vec<(usize, usize)> = match joining {
            None => (0..blades / 2).map(|pair| (2 * pair, 2 * pair + 1)).collect(),
            Some(_) => {
                let to = |(blade, to): (usize, &Option<(usize, i8)>)| {
                    to.map(|(to, _)| (blade.min(to), blade.max(to)))
                };
                joined.iter().enumerate().filter_map(to).collect()
            }
        };
        pairs.sort_unstable();
        pairs.dedup();
        let order: Vec<usize> = pairs.into_iter().flat_map(|(first, second)| [first, second]).collect();
        let mut places = vec![0; blades];
        order.iter().enumerate().for_each(|(place, &blade)| places[blade] = place);
        let of_grade = |grade: usize| (0..blades).filter(move |&blade| usize::from(grades[blade]) == grade);
        let of_each = (0..algebra.grade_count()).map(|grade| of_grade(grade).map(|b| (b, b, 1)).collect());
        let of_joined = (0..algebra.grade_count())
            .map(|grade| of_grade(grade).filter_map(|b| joined[b].map(|(to, sign)| (to, b, sign))).collect());
        let all: Vec<Vec<(usize, usize, i8)>> =
            of_each.chain(of_joined).filter(|entries: &Vec<_>| !entries.is_empty()).collect();
        let entries = all.iter().enumerate().flat_map(|(map, entries)| {
            let norm = if joining.is_some() && !is_oriented { (entries.len() as f64).sqrt() } else { 1.0 };
            entries.iter().map(move |&(row, column, sign)| (map, row, column, f64::from(sign) / norm))
        });
        let entries = entries
            .map(|(map, row, column, value)| Entry { map, row: places[row], column: places[column], value })
            .collect();
        let order: Vec<u16> = order.into_iter().map(|blade| blade as u16).collect();
        Ok(Self {
            maps: Maps::new(blades, all.len(), is_oriented, entries)?,
            geometric: Table::geometric(algebra).ordered(&order)?,
            regressive: Table::regressive(algebra).ordered(&order)?,
            order,
        })
    }
}
