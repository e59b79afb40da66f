//! Settings that differ between two configurations.

use std::collections::{BTreeMap, BTreeSet};
use toml::{Table, Value};

/// The dotted keys whose values differ, with both values as TOML.
pub fn differences(first: &Table, second: &Table) -> Vec<(String, String, String)> {
    let (mut a, mut b) = (BTreeMap::new(), BTreeMap::new());
    leaves("", first, &mut a);
    leaves("", second, &mut b);
    let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let value = |side: &BTreeMap<String, String>, key: &String| {
        side.get(key).cloned().unwrap_or_else(|| "unset".to_owned())
    };
    keys.into_iter()
        .filter(|key| a.get(*key) != b.get(*key))
        .map(|key| (key.clone(), value(&a, key), value(&b, key)))
        .collect()
}

fn leaves(prefix: &str, table: &Table, into: &mut BTreeMap<String, String>) {
    for (name, value) in table {
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match value {
            Value::Table(inner) => leaves(&key, inner, into),
            other => drop(into.insert(key, other.to_string())),
        }
    }
}
