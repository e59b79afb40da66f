//! Modes of a forward pass, per thread: whether operations record history, and whether the pass is one of training.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
};

thread_local! {
    static ENABLED: Cell<bool> = const { Cell::new(true) };
    static PASS: RefCell<Option<Pass>> = const { RefCell::new(None) };
}

/// Bits of a stream that number the pass; those above number the draws within it.
const PASS_BITS: u32 = 40;

/// A forward pass of training, which determines its random numbers.
#[derive(Clone)]
pub(crate) struct Pass {
    number: u64,
    /// Streams drawn so far in this pass, by seed.
    draws: BTreeMap<u64, u64>,
}

/// Whether operations on this thread record history.
pub fn is_grad_enabled() -> bool {
    ENABLED.get()
}

/// Runs `body` without recording history: its results require no gradients. Applies to this thread only.
///
/// It also turns training mode off: [`is_training`] is false within `body`, even inside of [`training`].
pub fn no_grad<R>(body: impl FnOnce() -> R) -> R {
    with_mode(false, body)
}

/// Runs `body` as the forward pass of training number `pass`; outside of this, every pass is one of evaluation. Applies to this
/// thread only; the previous mode returns even if `body` panics.
///
/// Layers that act in training alone, such as dropout, ask [`training_stream`], so that one call decides for all of them, however
/// deep they are nested. Their random numbers follow from `pass`: give each pass of a run its own number, such as that of its step,
/// and a run that is resumed at a step draws what an undisturbed run would.
///
/// ```
/// use gradewise_autograd::{evaluation, is_training, no_grad, training};
///
/// assert!(!is_training());
/// training(7, || {
///     assert!(is_training());
///     evaluation(|| assert!(!is_training()));
///     no_grad(|| assert!(!is_training()));
/// });
/// ```
pub fn training<R>(pass: u64, body: impl FnOnce() -> R) -> R {
    with_pass(Some(Pass { number: pass, draws: BTreeMap::new() }), body)
}

/// Runs `body` as evaluation, also inside of [`training`].
pub fn evaluation<R>(body: impl FnOnce() -> R) -> R {
    with_pass(None, body)
}

/// Whether the pass under way on this thread is one of [`training`] that records history.
pub fn is_training() -> bool {
    is_grad_enabled() && PASS.with_borrow(Option::is_some)
}

/// The stream of random numbers for the next draw from `seed`; `None` in evaluation, where nothing is to be drawn.
///
/// It follows from the number of the pass and from how often this pass has drawn from `seed` before: a layer that is used twice
/// draws twice, and so do two layers of one seed. A recomputation under [`checkpoint`](crate::checkpoint) gets the streams of the
/// first computation. The first draw's stream is the number of the pass.
pub fn training_stream(seed: u64) -> Option<u64> {
    if !is_grad_enabled() {
        return None;
    }
    PASS.with_borrow_mut(|pass| {
        let pass = pass.as_mut()?;
        let draws = pass.draws.entry(seed).or_default();
        let stream = pass.number.wrapping_add(*draws << PASS_BITS);
        *draws += 1;
        Some(stream)
    })
}

/// The pass under way, as it stands.
pub(crate) fn current_pass() -> Option<Pass> {
    PASS.with_borrow(Clone::clone)
}

/// Runs `body` within `pass`; the previous one returns even if `body` panics.
pub(crate) fn with_pass<R>(pass: Option<Pass>, body: impl FnOnce() -> R) -> R {
    struct Restore(Option<Pass>);
    impl Drop for Restore {
        fn drop(&mut self) {
            PASS.set(self.0.take());
        }
    }
    let _restore = Restore(PASS.replace(pass));
    body()
}

/// Runs `body` with recording on or off; the previous mode returns even if `body` panics.
pub(crate) fn with_mode<R>(enabled: bool, body: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            ENABLED.set(self.0);
        }
    }
    let _restore = Restore(ENABLED.replace(enabled));
    body()
}
