//! A value computed at its first use and shared from then on, with the standard library or without.

#[cfg(feature = "std")]
pub(crate) struct Once<T>(std::sync::OnceLock<alloc::boxed::Box<T>>);

/// Without a standard library no thread can block: threads that race on the first use each compute the value, and one of the results is
/// kept.
#[cfg(not(feature = "std"))]
pub(crate) struct Once<T>(once_cell::race::OnceBox<T>);

impl<T> Once<T> {
    #[cfg(feature = "std")]
    pub(crate) const fn new() -> Self {
        Self(std::sync::OnceLock::new())
    }

    #[cfg(not(feature = "std"))]
    pub(crate) const fn new() -> Self {
        Self(once_cell::race::OnceBox::new())
    }

    /// The value, computed by `f` if this is the first use.
    pub(crate) fn get_or_init(&self, f: impl FnOnce() -> T) -> &T {
        self.0.get_or_init(|| alloc::boxed::Box::new(f()))
    }
}
