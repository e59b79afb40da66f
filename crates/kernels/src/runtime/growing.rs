//! Maps that are read at every call and grow only at first uses.

use arc_swap::ArcSwap;
use hashbrown::{Equivalent, HashMap};
use rustc_hash::FxBuildHasher;
use std::{
    hash::Hash,
    ops::Deref,
    sync::{Arc, LazyLock},
};

/// A snapshot of a map.
pub(crate) type Table<K, V> = HashMap<K, V, FxBuildHasher>;

/// A map whose readers take no lock and copy nothing but the value: whoever adds an entry replaces the whole map by a larger one. For
/// maps that soon stop growing, as adding costs time in proportion to what is there.
pub(crate) struct Growing<K, V>(LazyLock<ArcSwap<Table<K, V>>>);

impl<K: Clone + Eq + Hash, V: Clone> Growing<K, V> {
    pub const fn new() -> Self {
        Self(LazyLock::new(ArcSwap::default))
    }

    /// The value of `key`. `Q` is any type that hashes like `K` and compares with it.
    pub fn get<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<V> {
        self.0.load().get(key).cloned()
    }

    /// The map as it is now, to use a value in place.
    pub fn read(&self) -> impl Deref<Target = Arc<Table<K, V>>> {
        self.0.load()
    }

    /// Adds `value` unless another thread has added one for `key`, and returns the one that stays.
    pub fn add(&self, key: K, value: V) -> V {
        self.0.rcu(|table| {
            let mut larger = Table::clone(table);
            larger.entry(key.clone()).or_insert_with(|| value.clone());
            larger
        });
        self.get(&key).unwrap_or(value)
    }

    /// The value of `key`, made by `make` at its first use. Threads that ask for it at once may each make one; one of them stays.
    pub fn get_or_make(&self, key: K, make: impl FnOnce() -> V) -> V {
        self.get(&key).unwrap_or_else(|| self.add(key, make()))
    }

    /// Removes every entry.
    pub fn clear(&self) {
        self.0.store(Arc::default());
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Default for Growing<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::Growing;

    #[test]
    fn the_first_value_of_a_key_stays_whoever_adds_another() {
        static MAP: Growing<u32, u32> = Growing::new();
        std::thread::scope(|scope| {
            for thread in 0..4u32 {
                scope.spawn(move || {
                    for key in 0..100 {
                        let value = MAP.get_or_make(key, || thread);
                        assert_eq!(MAP.get(&key), Some(value));
                        assert_eq!(MAP.add(key, 7), value);
                    }
                });
            }
        });
        assert!(MAP.read().get(&99).is_some_and(|value| *value < 4));
        MAP.clear();
        assert_eq!(MAP.get(&0), None);
    }
}
