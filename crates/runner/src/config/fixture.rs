//! The settings of an experiment, used by the tests of this crate.

use super::{Config, ConfigError, DataSection, Resolver, Runtime, Train, at_least_one, refuse};
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Data {
    pub source: String,
    pub seed: u64,
    pub train: usize,
    pub particles: usize,
}

impl DataSection for Data {
    fn validate(&self) -> Result<(), ConfigError> {
        at_least_one(&[("data.train", self.train)])?;
        if self.particles < 2 {
            return refuse("data.particles", self.particles, "at least 2: messages need neighbours");
        }
        Ok(())
    }

    fn train(&self) -> usize {
        self.train
    }
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Model {
    pub hidden: usize,
}

pub type Settings = Config<Data, Model>;

pub fn defaults() -> Settings {
    Config {
        data: Data { source: "simulate".to_owned(), seed: 0, train: 3000, particles: 5 },
        model: Model { hidden: 8 },
        train: Train::default(),
        runtime: Runtime::default(),
    }
}

pub fn resolver() -> Resolver {
    Resolver::new(&defaults()).unwrap()
}

pub fn resolve(resolver: &Resolver) -> Result<Settings, ConfigError> {
    Config::resolve(resolver, |model: &Model| at_least_one(&[("model.hidden", model.hidden)]))
}
