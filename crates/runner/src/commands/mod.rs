//! The commands that every program has, one file each: its arguments, its help and what it does.
//!
//! A new command needs its file and two lines here.

mod bisect;
mod compare;
mod compare_precision;
mod debug;
mod doctor;
mod eval;
mod export;
mod gradcheck;
mod hardware;
mod import;
mod infer;
mod inspect;
mod kernels;
mod memory;
mod profile;
mod report;
mod stability;
mod symmetry;
mod train;
mod verify;

use crate::{
    program::{Entry, Program, Registered},
    task::Task,
};

/// Lists the commands in the order of the help: `task` for commands on a task, `plain` for others.
macro_rules! commands {
    ($($kind:ident $arguments:path;)*) => {
        impl Program {
            /// A program without tasks, named after its executable, with the commands that every program has.
            pub fn new() -> Self {
                Self::with(vec![$(Entry::$kind::<$arguments>()),*])
            }

            /// Adds a task, for which all task commands become available. It replaces an earlier one of the same name.
            #[must_use]
            pub fn task<T: Task>(self) -> Self {
                let mut registered = Registered::of::<T>();
                $(commands!(@serve $kind $arguments, T, registered);)*
                self.register(registered)
            }
        }

        impl Default for Program {
            fn default() -> Self {
                Self::new()
            }
        }
    };
    (@serve task $arguments:path, $task:ident, $registered:ident) => {
        $registered.serve::<$arguments, $task>()
    };
    (@serve plain $arguments:path, $task:ident, $registered:ident) => {};
}

commands! {
    task train::Train;
    task eval::Eval;
    task infer::Infer;
    plain inspect::Inspect;
    task export::Export;
    plain import::Import;
    plain compare::Compare;
    task symmetry::Symmetry;
    task stability::Stability;
    task compare_precision::ComparePrecision;
    task bisect::Bisect;
    plain gradcheck::Gradcheck;
    plain verify::Verify;
    task memory::Memory;
    task profile::Arguments;
    plain hardware::HardwareList;
    plain doctor::Doctor;
    plain kernels::Kernels;
    plain debug::Debug;
    plain report::Report;
}

/// The maximum of non-negative numbers; NaN counts as the greatest.
fn worst(values: impl Iterator<Item = f64>) -> f64 {
    // The negated comparison selects NaN, which no later value replaces.
    values.fold(0.0, |worst: f64, value| if value <= worst || worst.is_nan() { worst } else { value })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_worst_of_numbers_with_nan_is_nan_wherever_it_stands() {
        let worst = |values: [f64; 3]| super::worst(values.into_iter());
        assert_eq!(worst([1.0, 3.0, 2.0]), 3.0);
        for position in 0..3 {
            let mut values = [1.0, 3.0, 2.0];
            values[position] = f64::NAN;
            assert!(worst(values).is_nan(), "{position}");
        }
    }
}
