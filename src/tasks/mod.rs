//! The experiments, one file each.
//!
//! A new experiment needs its file and two lines here.

mod fields;
mod forces;
mod gpt;
mod gravity;
mod hulls;
mod lorentz;
mod nbody;
mod o5;
mod points;
mod potential;
mod volumes;

pub use gpt::GptTask;
pub use nbody::NBodyTask;
pub use potential::PotentialTask;

use fields::{Charges, Fields, Maxwell, NavierStokes};
use gradewise_runner::Program;
use points::Points;

macro_rules! tasks {
    ($($task:ty;)*) => {
        /// Adds all tasks, in the order of the help.
        pub fn add(program: Program) -> Program {
            program$(.task::<$task>())*
        }

        #[cfg(test)]
        mod tests {
            use super::*;

            #[test]
            fn presets_are_valid_and_survive_toml() {
                $(checks::presets::<$task>();)*
            }
        }
    };
}

tasks! {
    NBodyTask;
    gravity::Gravity;
    Points<volumes::Volumes>;
    Points<hulls::Hulls>;
    Points<hulls::SmallHulls>;
    Points<o5::O5>;
    lorentz::Lorentz;
    forces::Forces;
    potential::PotentialTask;
    Fields<NavierStokes>;
    Fields<Maxwell>;
    Fields<Charges>;
    GptTask;
}

#[cfg(test)]
mod checks {
    use super::GptTask;
    use gradewise_runner::{
        config::Hardware,
        prelude::*,
        task::{identity, resolve, resolver},
    };

    pub fn presets<T: Task>() {
        assert_eq!(T::PRESETS[0].name, "quick");
        assert!(T::PRESETS[0].settings.is_empty(), "the first preset is what there is without one");
        for preset in T::PRESETS {
            let config = resolve::<T>(&resolver::<T>(Some(preset.name)).unwrap()).unwrap();
            let text = toml::to_string_pretty(&config).unwrap();
            let read = toml::from_str::<TaskConfig<T>>(&text).unwrap();
            assert_eq!(read, config, "{} {}", T::NAME, preset.name);
        }
        for hardware in Hardware::all().unwrap() {
            let mut resolver = resolver::<T>(None).unwrap();
            resolve::<T>(hardware.apply(&mut resolver).unwrap()).unwrap();
        }
        let message = resolver::<T>(Some("none")).unwrap_err().to_string();
        assert!(message.contains("quick") && message.contains(T::NAME), "{message}");
    }

    #[test]
    fn what_a_run_may_change_is_no_part_of_its_model() {
        let value = identity::<GptTask>(&gradewise_zoo::models::GptConfig::default());
        assert!(value.get("width").is_some() && value.get("dropout").is_none(), "{value}");
    }
}
