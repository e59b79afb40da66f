//! Upper bounds of settings that tasks bring: a number far beyond every use would end in hours without a word, or in the kernel's killer of
//! processes.

use super::ConfigError;
use serde::Serialize;
use toml::Value;

/// The most layers, or repetitions of layers: each takes its time and memory in every step.
const MOST_LAYERS: i64 = 1024;
/// The largest other size of a model: weights grow with its square.
const MOST_WIDTH: i64 = 16_384;
/// The largest count of samples, particles or frames.
const MOST_DATA: i64 = 100_000_000;

/// Words in the names of settings that count layers or repetitions of them.
const REPEATED: [&str; 6] = ["layers", "blocks", "substeps", "kicks", "rounds", "depth"];

/// Checks the numbers of a section of the configuration.
///
/// # Errors
/// [`ConfigError::Unacceptable`] for counts beyond all use, and for numbers that are not finite.
pub(super) fn check(section: &str, settings: &impl Serialize) -> Result<(), ConfigError> {
    let value = Value::try_from(settings).map_err(|error| ConfigError::Form(error.to_string()))?;
    walk(section, section, &value)
}

fn walk(section: &str, key: &str, value: &Value) -> Result<(), ConfigError> {
    let refuse = |reason: String| Err(ConfigError::Unacceptable { key: key.to_owned(), reason });
    match value {
        Value::Table(table) => {
            table.iter().try_for_each(|(name, value)| walk(section, &format!("{key}.{name}"), value))
        }
        Value::Array(values) => values.iter().try_for_each(|value| walk(section, key, value)),
        Value::Integer(count) if *count > most(section, key) => {
            let most = most(section, key);
            refuse(format!("{count}, expected at most {most}; beyond that no machine finishes a step"))
        }
        Value::Float(number) if !number.is_finite() => refuse(format!("{number}, expected a finite number")),
        _ => Ok(()),
    }
}

fn most(section: &str, key: &str) -> i64 {
    let name = key.rsplit('.').next().unwrap_or(key);
    match section {
        _ if name == "seed" => i64::MAX,
        "model" if REPEATED.iter().any(|word| name.contains(word)) => MOST_LAYERS,
        "model" => MOST_WIDTH,
        _ => MOST_DATA,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_all_use_are_refused_by_name() {
        #[derive(Serialize)]
        struct Model {
            hidden: usize,
            layers: usize,
            softening: f64,
            seed: u64,
        }
        let sound = || Model { hidden: 28, layers: 3, softening: 0.1, seed: 1 << 60 };
        check("model", &sound()).unwrap();
        for (model, parts) in [
            (Model { hidden: 16_385, ..sound() }, ["`model.hidden` is 16385", "at most 16384"]),
            (Model { layers: 100_000, ..sound() }, ["`model.layers` is 100000", "at most 1024"]),
            (Model { softening: f64::INFINITY, ..sound() }, ["`model.softening` is inf", "finite"]),
            (Model { softening: f64::NAN, ..sound() }, ["`model.softening` is NaN", "finite"]),
        ] {
            let message = check("model", &model).unwrap_err().to_string();
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        }
        assert!(check("data", &Model { hidden: 200_000_000, ..sound() }).is_err());
    }
}
