//! Layers of TOML over a table of defaults that also serves as the schema.

use super::error::{ConfigError, Origin, UnknownKey};
use gradewise_nn::choice::nearest;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Read},
    path::Path,
};
use toml::{Table, Value};

/// Settings as the text of a file that [`Resolver::file`] reads.
///
/// # Errors
/// [`ConfigError::Form`] for values that TOML cannot represent, such as a whole number above 2^63.
pub fn text(settings: &impl Serialize) -> Result<String, ConfigError> {
    toml::to_string_pretty(settings).map_err(|error| ConfigError::Form(error.to_string()))
}

/// Settings as a table.
///
/// # Errors
/// As [`text`].
pub fn table(settings: &impl Serialize) -> Result<Table, ConfigError> {
    Table::try_from(settings).map_err(|error| ConfigError::Form(error.to_string()))
}

/// Collects layers of settings over the defaults of `T`.
///
/// `T` must serialise every one of its settings, so that its defaults are the list of valid keys and their types.
#[derive(Clone, Debug)]
pub struct Resolver {
    defaults: Table,
    table: Table,
    /// Dotted keys that a layer has set.
    set: BTreeSet<String>,
}

/// The text of a file, or of a pipe such as `<(…)`; an error if it exceeds the size limit.
fn read_limited(path: &Path) -> io::Result<String> {
    const MOST: u64 = 1 << 20;
    let mut text = String::new();
    File::open(path)?.take(MOST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "more than 1 MiB, which no configuration has",
        ));
    }
    Ok(text)
}

impl Resolver {
    /// Starts from the defaults.
    pub fn new<T: Serialize>(defaults: &T) -> Result<Self, ConfigError> {
        let table = table(defaults)?;
        Ok(Self { defaults: table.clone(), table, set: BTreeSet::new() })
    }

    /// Adds a TOML file as a layer.
    pub fn file(&mut self, path: &Path) -> Result<&mut Self, ConfigError> {
        let text =
            read_limited(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let layer: Table = toml::from_str(&text)
            .map_err(|source| ConfigError::Syntax { path: path.to_owned(), source: Box::new(source) })?;
        self.merge(layer, &Origin::File(path.to_owned()))?;
        Ok(self)
    }

    /// Adds the settings of a preset for a kind of machine as a layer.
    pub fn table(&mut self, layer: Table, preset: &'static str) -> Result<&mut Self, ConfigError> {
        self.merge(layer, &Origin::Hardware(preset))?;
        Ok(self)
    }

    /// Adds one `table.key=value` as a layer. Strings need no quotes.
    pub fn assignment(&mut self, text: &str) -> Result<&mut Self, ConfigError> {
        let malformed = || ConfigError::NotAnOverride { text: text.to_owned() };
        let (key, value) = text.split_once('=').ok_or_else(malformed)?;
        let (key, value) = (key.trim(), value.trim());
        let parts: Vec<&str> = key.split('.').collect();
        if parts.iter().any(|part| part.is_empty()) {
            return Err(malformed());
        }
        let default = parts.iter().try_fold(None, |at: Option<&Value>, part| {
            let table = at.map_or(Some(&self.table), Value::as_table)?;
            table.get(*part).map(Some)
        });
        let parsed = toml::from_str::<Table>(&format!("value = {value}"))
            .ok()
            .filter(|table| table.len() == 1)
            .and_then(|mut table| table.remove("value"));
        let value = match (parsed, default.flatten()) {
            // A value for a text setting is taken literally, unless it is quoted.
            (Some(Value::String(quoted)), _) => Value::String(quoted),
            (_, Some(Value::String(_))) | (None, _) => Value::String(value.to_owned()),
            (Some(other), _) => other,
        };
        self.set(key, value, text)
    }

    /// Adds one value as a layer, set by `argument` of the command line: `--dtype bf16` for `runtime.dtype`.
    pub fn set(
        &mut self,
        key: &str,
        value: impl Into<Value>,
        argument: &str,
    ) -> Result<&mut Self, ConfigError> {
        let layer = key
            .rsplit('.')
            .fold(value.into(), |inner, part| Value::Table(Table::from_iter([(part.to_owned(), inner)])));
        if let Value::Table(layer) = layer {
            self.merge(layer, &Origin::Argument(argument.to_owned()))?;
        }
        Ok(self)
    }

    /// Whether a layer has set `key`, such as `train.steps`, rather than leaving it at its default.
    pub fn is_set(&self, key: &str) -> bool {
        self.set.contains(key)
    }

    fn merge(&mut self, layer: Table, origin: &Origin) -> Result<(), ConfigError> {
        merge(&mut self.table, layer, "", origin, &mut self.set)
    }

    /// The settings as a typed value.
    pub fn finish<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        self.table.clone().try_into().map_err(|error: toml::de::Error| {
            // Whole numbers are counts and seeds. Checked here, because the deserialiser's error would name the Rust type.
            match negative(&self.table, "") {
                Some((key, actual)) => {
                    ConfigError::Negative { key, actual, expected: "at least 0".to_owned() }
                }
                None => match self.culprit::<T>() {
                    Some(key) => ConfigError::Unacceptable { key, reason: error.message().to_owned() },
                    None => ConfigError::Form(error.to_string()),
                },
            }
        })
    }

    /// The setting that causes the error: without it, the others deserialize to `T`. The error itself does not name it where tables are
    /// flattened.
    fn culprit<T: DeserializeOwned>(&self) -> Option<String> {
        let is_fine_without = |key: &&String| {
            let mut table = self.table.clone();
            let parts: Vec<&str> = key.splitn(3, '.').collect();
            restore(&mut table, &self.defaults, &parts);
            table.try_into::<T>().is_ok()
        };
        self.set.iter().find(is_fine_without).cloned()
    }
}

/// Restores the default of a key, or removes a key that has none.
fn restore(table: &mut Table, defaults: &Table, key: &[&str]) {
    let Some((name, rest)) = key.split_first() else { return };
    match (defaults.get(*name), rest) {
        (Some(Value::Table(defaults)), [_, ..]) => {
            if let Some(Value::Table(inner)) = table.get_mut(*name) {
                restore(inner, defaults, rest);
            }
        }
        (Some(default), _) => drop(table.insert((*name).to_owned(), default.clone())),
        (None, _) => drop(table.remove(*name)),
    }
}

/// The first whole number below zero, under its dotted key.
fn negative(table: &Table, prefix: &str) -> Option<(String, i64)> {
    table.iter().find_map(|(name, value)| {
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match value {
            Value::Table(inner) => negative(inner, &key),
            Value::Integer(number) if *number < 0 => Some((key, *number)),
            _ => None,
        }
    })
}

/// Text settings that also accept a number without quotes.
const NUMBER_OR_WORD: [&str; 1] = ["runtime.devices"];

/// Tables with arbitrary keys, the names of operations, and text values.
const OPEN: [&str; 2] = ["runtime.backends", "runtime.autocast"];

fn merge(
    base: &mut Table,
    layer: Table,
    prefix: &str,
    origin: &Origin,
    set: &mut BTreeSet<String>,
) -> Result<(), ConfigError> {
    for (name, value) in layer {
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        if OPEN.contains(&prefix) {
            let origin = origin.clone();
            let (expected, actual) = ("the text", describe(&value));
            match value {
                // A key that itself contains a dot.
                Value::Table(inner) => {
                    let dotted =
                        inner.into_iter().map(|(rest, value)| (format!("{name}.{rest}"), value)).collect();
                    merge(base, dotted, prefix, &origin, set)?;
                }
                text @ Value::String(_) => {
                    base.insert(name, text);
                    set.insert(key);
                }
                other => {
                    let actual = format!("{actual} {other}");
                    return Err(ConfigError::WrongType { origin, key, actual, expected });
                }
            }
            continue;
        }
        let Some(slot) = base.get_mut(&name) else {
            let valid: Vec<String> = base.keys().cloned().collect();
            let suggestion = match (prefix, &value) {
                ("", Value::Table(_)) => nearest(&name, &valid).map(|near| format!("`{near}`")),
                // A setting given without its table.
                ("", _) => settings_named(&name, base),
                _ => nearest(&name, &valid).map(|near| format!("`{prefix}.{near}`")),
            };
            let origin = origin.clone();
            let table = prefix.to_owned();
            return Err(ConfigError::UnknownKey(Box::new(UnknownKey {
                origin,
                key,
                suggestion,
                table,
                valid,
            })));
        };
        match (slot, value) {
            (Value::Table(inner), Value::Table(layer)) => {
                merge(inner, layer, &key, origin, set)?;
                continue;
            }
            (slot @ Value::Float(_), Value::Integer(whole)) => *slot = Value::Float(whole as f64),
            (slot @ Value::String(_), Value::Integer(whole)) if NUMBER_OR_WORD.contains(&key.as_str()) => {
                *slot = Value::String(whole.to_string());
            }
            (slot, value) if slot.same_type(&value) && !slot.is_table() => *slot = value,
            (slot, value) => {
                return Err(ConfigError::WrongType {
                    origin: origin.clone(),
                    key,
                    actual: format!("{} {value}", describe(&value)),
                    expected: describe(slot),
                });
            }
        }
        set.insert(key);
    }
    Ok(())
}

fn describe(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "the text",
        Value::Integer(_) => "a whole number",
        Value::Float(_) => "a number",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "a list",
        Value::Table(_) => "a table of settings",
    }
}

/// The settings, in any table, whose name is closest to `name`: `train.batch_size` for `batch_size`.
fn settings_named(name: &str, tables: &Table) -> Option<String> {
    let tables = || tables.iter().filter_map(|(table, value)| Some((table, value.as_table()?)));
    let leaves: Vec<&str> = tables().flat_map(|(_, inner)| inner.keys()).map(String::as_str).collect();
    let near = nearest(name, &leaves)?;
    let holders = tables().filter(|(_, inner)| inner.contains_key(near));
    Some(holders.map(|(table, _)| format!("`{table}.{near}`")).collect::<Vec<_>>().join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::fixture::{Settings, defaults, resolve, resolver};
    use proptest::prelude::*;
    use std::path::PathBuf;

    fn refuse(text: &str) -> String {
        resolver().assignment(text).unwrap_err().to_string()
    }

    #[test]
    fn layers_apply_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.toml");
        std::fs::write(&path, "[train]\nsteps = 7\nlr = 1\n[data]\nsource = \"here\"\n").unwrap();
        let mut resolver = resolver();
        resolver.file(&path).unwrap().assignment("train.steps=60").unwrap();
        let config: Settings = resolver.assignment("data.source=some/folder").unwrap().finish().unwrap();
        assert_eq!((config.train.trainer.steps, config.train.trainer.lr), (60, 1.0));
        assert_eq!(config.data.source, "some/folder");
        assert_eq!(config.train.batch_size, defaults().train.batch_size);
    }

    #[test]
    fn a_file_without_an_end_is_no_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("long.toml");
        std::fs::write(&path, "#".repeat((1 << 20) + 1)).unwrap();
        let endless = cfg!(unix).then(|| PathBuf::from("/dev/zero"));
        for path in [Some(path), endless].into_iter().flatten() {
            let message = resolver().file(&path).map(drop).unwrap_err().to_string();
            assert!(message.contains("more than 1 MiB"), "{message}");
        }
    }

    #[test]
    fn unknown_keys_get_a_suggestion_and_the_list_of_their_table() {
        let message = refuse("train.bacth_size=4");
        assert!(message.contains("did you mean `train.batch_size`?"), "{message}");
        assert!(message.contains("[train] has") && message.contains("weight_decay"), "{message}");
        let message = refuse("trian.steps=4");
        assert!(message.contains("did you mean `train`?") && message.contains("runtime"), "{message}");
        assert!(!refuse("train.qqqq=4").contains("did you mean"));
        assert!(refuse("train.steps.more=4").contains("expected a whole number"));
        // Only the table is missing.
        assert!(
            refuse("batch_size=4").contains("unknown key `batch_size`, did you mean `train.batch_size`?")
        );
        assert!(refuse("bacth_size=4").contains("did you mean `train.batch_size`?"));
        assert!(refuse("seed=4").contains("did you mean `data.seed` or `train.seed`?"));
        assert!(!refuse("qqqq=4").contains("did you mean"));
    }

    #[test]
    fn numbers_below_zero_are_refused_in_words() {
        for (text, expected) in [
            ("train.batch_size=-3", "`train.batch_size` is -3, expected a whole number, at least 1"),
            ("data.particles=-1", "`data.particles` is -1, expected a whole number, at least 2"),
            ("train.warmup_steps=-1", "`train.warmup_steps` is -1, expected a whole number, at least 0"),
            ("runtime.threads=-2", "`runtime.threads` is -2, expected a whole number, at least 0"),
            ("train.seed=-2", "`train.seed` is -2, expected a whole number, at least 0"),
        ] {
            let mut resolver = resolver();
            resolver.assignment(text).unwrap();
            let message = resolve(&resolver).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
            assert!(!message.contains("usize") && !message.contains("u64"), "{message}");
        }
    }

    #[test]
    fn wrong_types_name_the_key_the_value_and_what_is_expected() {
        for (text, expected) in [
            ("train.steps=ten", "the text \"ten\", expected a whole number"),
            ("train.steps=1.5", "a number 1.5, expected a whole number"),
            ("train.lr=true", "expected a number"),
            ("train=3", "expected a table of settings"),
        ] {
            let message = refuse(text);
            assert!(message.contains(expected) && message.contains(text), "{message}");
        }
        assert!(refuse("train.steps").contains("key=value"));
        assert!(refuse("train..steps=1").contains("key=value"));
        // Text is text even if it looks like a number, and a value cannot smuggle in other keys.
        assert_eq!(
            resolver().assignment("data.source=12").unwrap().finish::<Settings>().unwrap().data.source,
            "12"
        );
        assert!(resolver().assignment("train.steps=1\nlr=2").is_err());
    }

    #[test]
    fn tables_of_operations_take_any_name_with_text() {
        let mut resolver = resolver();
        for text in [
            "runtime.backends.gelu=reference",
            "runtime.backends.sgp.backward=cuda",
            "runtime.autocast.matmul=f32",
        ] {
            resolver.assignment(text).unwrap();
        }
        let config: Settings = resolver.finish().unwrap();
        let pairs: Vec<_> = config.runtime.backends.iter().map(|(k, v)| (k.as_str(), v.name())).collect();
        assert_eq!(pairs, [("gelu", "reference"), ("sgp.backward", "cuda")]);
        assert_eq!(config.runtime.autocast["matmul"].name(), "f32");
        assert!(refuse("runtime.backends.gelu=[1]").contains("expected the text"));
        assert!(refuse("runtime.backends=1").contains("expected a table"));
    }

    #[test]
    fn broken_files_show_the_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.toml");
        std::fs::write(&path, "[train]\nsteps = \n").unwrap();
        let message = resolver().file(&path).unwrap_err().to_string();
        assert!(message.contains("line 2") && message.contains("run.toml"), "{message}");
        assert!(matches!(resolver().file(Path::new("/nonexistent.toml")), Err(ConfigError::Read { .. })));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn no_text_panics(text in "[a-z_.=\"'\\[\\]{}0-9 \n#-]{0,40}", keyed: bool) {
            let text = if keyed { format!("train.{text}") } else { text };
            let _ = resolver().assignment(&text);
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("fuzz.toml");
            std::fs::write(&path, &text).unwrap();
            let _ = resolver().file(&path);
        }
    }
}
