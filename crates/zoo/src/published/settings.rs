//! What the user says of a published model.

use gradewise_nn::{Error, Result};
use serde_json::{Map, Value};

/// Arguments of a published constructor, those of its parts in maps of their own: what does not show in the shapes of weights, such as
/// `attention.num_heads` of an LGATr.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Settings(pub(super) Map<String, Value>);

impl Settings {
    /// Settings from texts `key=value`. Parts of a key are separated by dots; values are JSON, or text if they are none.
    ///
    /// ```
    /// use gradewise_zoo::published::Settings;
    ///
    /// let settings = Settings::parse(["attention.num_heads=4", "mlp.nonlinearity=silu", "reinsert_mv_channels=[0]"])?;
    /// assert_eq!(settings.get("attention.num_heads"), Some(&4.into()));
    /// assert!(Settings::parse(["attention.num_heads"]).is_err());
    /// # Ok::<(), gradewise_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for a text without `=`, and for a key below a value that is no map.
    pub fn parse<S: AsRef<str>>(texts: impl IntoIterator<Item = S>) -> Result<Self> {
        let mut settings = Self::default();
        for text in texts {
            let text = text.as_ref();
            let refused = || Error::Argument {
                operation: "import",
                argument: "settings",
                actual: text.to_owned(),
                expected: "key=value, such as attention.num_heads=8".to_owned(),
            };
            let (key, value) = text.split_once('=').ok_or_else(refused)?;
            let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
            let (path, last) = key.rsplit_once('.').map_or((None, key), |(path, last)| (Some(path), last));
            let mut map = &mut settings.0;
            for part in path.into_iter().flat_map(|path| path.split('.')) {
                let inner = map.entry(part).or_insert_with(|| Value::Object(Map::new()));
                map = inner.as_object_mut().ok_or_else(refused)?;
            }
            map.insert(last.to_owned(), value);
        }
        Ok(settings)
    }

    /// The value of a key whose parts are separated by dots.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let mut parts = key.split('.');
        let first = self.0.get(parts.next()?)?;
        parts.try_fold(first, |value, part| value.get(part))
    }

    pub(super) fn first_key(&self) -> Option<&str> {
        self.0.keys().next().map(String::as_str)
    }
}
