//! Deep copies of models: which copy belongs to which original.

use rustc_hash::FxHashMap;
use std::{any::Any, cell::RefCell, sync::Arc};

thread_local! {
    /// The copies made so far, by the addresses of the originals, each with its original, so that no address is reused meanwhile. `None`
    /// outside of [`copying`].
    static COPIES: RefCell<Option<FxHashMap<usize, Box<dyn Any>>>> = const { RefCell::new(None) };
}

/// Runs `work`, the body of a `Clone::clone` that [`#[derive(DeepClone)]`](macro@crate::DeepClone) does not write, such that every clone of
/// a [`Parameter`](crate::Parameter) in it is a parameter of its own with the same values, and clones of handles to one parameter are
/// handles to one copy. Within another call, the copies are those of the outer one.
///
/// ```
/// use gradewise_kernels::{Array, Device};
/// use gradewise_nn::{Parameter, copying};
///
/// struct Tied {
///     encoder: Parameter,
///     decoder: Parameter,
/// }
///
/// impl Clone for Tied {
///     fn clone(&self) -> Self {
///         copying(|| Self { encoder: self.encoder.clone(), decoder: self.decoder.clone() })
///     }
/// }
///
/// let weight = Parameter::new(Array::from_slice(&[1.0f32], [1], &Device::Cpu)?);
/// let model = Tied { encoder: weight.clone(), decoder: weight };
/// let copy = model.clone();
/// copy.encoder.set(Array::from_slice(&[2.0f32], [1], &Device::Cpu)?)?;
/// assert_eq!(copy.decoder.array().to_vec::<f32>()?, [2.0], "tied in the copy, too");
/// assert_eq!(model.encoder.array().to_vec::<f32>()?, [1.0], "the original has its own");
/// # Ok::<(), gradewise_nn::Error>(())
/// ```
pub fn copying<R>(work: impl FnOnce() -> R) -> R {
    /// Ends the copies of the outermost call, also if it panics.
    struct Outermost;
    impl Drop for Outermost {
        fn drop(&mut self) {
            let copies = COPIES.take();
            drop(copies);
        }
    }
    if COPIES.with_borrow(Option::is_some) {
        return work();
    }
    COPIES.set(Some(FxHashMap::default()));
    let _outermost = Outermost;
    work()
}

/// Within [`copying`], the copy of what `original` holds: the one made before, or a new one by `make`. `None` outside.
pub(crate) fn copy_of<T: 'static>(original: &Arc<T>, make: impl FnOnce() -> Arc<T>) -> Option<Arc<T>> {
    let address = Arc::as_ptr(original).addr();
    let earlier = COPIES.with_borrow(|copies| {
        let known = copies.as_ref()?.get(&address);
        Some(known.and_then(|pair| pair.downcast_ref::<[Arc<T>; 2]>()).map(|[_, copy]| Arc::clone(copy)))
    })?;
    if let Some(copy) = earlier {
        return Some(copy);
    }
    // Not while the map is borrowed: it may copy parts in turn.
    let copy = make();
    let pair = Box::new([Arc::clone(original), Arc::clone(&copy)]);
    COPIES.with_borrow_mut(|copies| copies.as_mut().map(|copies| copies.insert(address, pair)));
    Some(copy)
}

/// What [`#[derive(DeepClone)]`](macro@crate::DeepClone) copies where `Clone` would share: an `Arc` of a module, and lists and options of them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be copied",
    note = "an `Arc` in a model is copied with what it holds, which must be Clone; mark one to share with #[module(skip)]"
)]
pub trait Copied {
    /// The copy; of several handles to one module the same one, within one [`copying`].
    #[must_use]
    fn copied(&self) -> Self;
}

impl<M: Clone + 'static> Copied for Arc<M> {
    fn copied(&self) -> Self {
        let make = || Arc::new(M::clone(self));
        copy_of(self, make).unwrap_or_else(make)
    }
}

impl<C: Copied> Copied for Option<C> {
    fn copied(&self) -> Self {
        self.as_ref().map(C::copied)
    }
}

impl<C: Copied> Copied for Vec<C> {
    fn copied(&self) -> Self {
        self.iter().map(C::copied).collect()
    }
}

impl<C: Copied, const N: usize> Copied for [C; N] {
    fn copied(&self) -> Self {
        self.each_ref().map(C::copied)
    }
}
