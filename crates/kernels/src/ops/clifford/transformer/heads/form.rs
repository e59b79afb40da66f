//! The quadratic form by planes.

use super::Split;

/// The planes of one grade whose squares count, and their signs.
pub(super) struct Grade {
    pub planes: Vec<usize>,
    pub signs: Vec<i8>,
}

/// The quadratic form of multivectors whose blades come in the order of planes.
pub(super) struct Form {
    /// Of each plane: −1, 0 or 1.
    pub factors: Vec<i8>,
    /// Grades with planes whose squares count.
    pub grades: Vec<Grade>,
    /// The group that is multiplied by the factors.
    pub query: Option<usize>,
}

impl Form {
    /// Of checked options.
    pub fn of(options: &Split<'_>) -> Self {
        let (norms, grades) = (options.algebra.squared_norms(), options.algebra.grades());
        let factors: Vec<i8> = options.order.iter().map(|&blade| norms[usize::from(blade)]).collect();
        let planes_of = |grade: usize| {
            let is_of = |&plane: &usize| usize::from(grades[usize::from(options.order[plane])]) == grade;
            let planes: Vec<usize> =
                (0..factors.len()).filter(|&plane| factors[plane] != 0).filter(is_of).collect();
            let signs = planes.iter().map(|&plane| factors[plane]).collect();
            Grade { planes, signs }
        };
        let grades = (0..options.algebra.grade_count()).map(planes_of);
        let grades = grades.filter(|grade| !grade.planes.is_empty()).collect();
        Self { factors, grades, query: options.query }
    }

    /// Where nothing reads it.
    pub const fn none() -> Self {
        Self { factors: Vec::new(), grades: Vec::new(), query: None }
    }

    /// As the device reads it: the factor of each plane; where the list of each grade begins, and one past the last; the lists, of all
    /// planes, those whose squares do not count too.
    pub fn words(options: &Split<'_>) -> Vec<u32> {
        let (norms, grades) = (options.algebra.squared_norms(), options.algebra.grades());
        let mut words: Vec<u32> =
            options.order.iter().map(|&blade| i32::from(norms[usize::from(blade)]) as u32).collect();
        let (mut first, mut list) = (vec![0], Vec::new());
        for grade in 0..options.algebra.grade_count() {
            let of_grade = |&(_, &blade): &(usize, &u16)| usize::from(grades[usize::from(blade)]) == grade;
            list.extend(options.order.iter().enumerate().filter(of_grade).map(|(plane, _)| plane as u32));
            first.push(list.len() as u32);
        }
        words.extend(first);
        words.extend(list);
        words
    }
}
