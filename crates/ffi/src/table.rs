//! Tables of optional functions, each looked up when it is first called.

use crate::Provider;
use std::ffi::{CStr, c_char, c_void};

/// The text that a library's function `const char *name(code)` returns for a code; `None` if the function is missing or returns null.
///
/// # Safety
/// The function of this name must take a `C` and return null or a string that lives for ever.
pub(crate) unsafe fn text_of<C>(provider: &dyn Provider, name: &CStr, code: C) -> Option<String> {
    let address = provider.symbol(name)?;
    // SAFETY: the caller says that the function has this type.
    let function = unsafe {
        std::mem::transmute::<*const c_void, unsafe extern "system" fn(C) -> *const c_char>(address)
    };
    // SAFETY: the function takes any code.
    let text = unsafe { function(code) };
    // SAFETY: a non-null result is a string that lives for ever.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Declares a table: a struct with one lazily resolved address per function, and for each function an `unsafe` method of
/// `$owner` under the function's own name.
///
/// `$owner` must have fields `table` (the struct) and `provider` (`Box<dyn Provider>`), a constant `LIBRARY`, a constant
/// `MISSING` (what to do about a missing function), and a method `check(&self, &'static str, $code) -> Result<()>`.
macro_rules! table {
    (
        impl $owner:ident, struct $table:ident, code $code:ty;
        $($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?);)*
    ) => {
        #[allow(non_snake_case)]
        #[derive(Default)]
        pub(crate) struct $table {
            $($name: std::sync::OnceLock<Option<unsafe extern "system" fn($($type),*) -> $code>>,)*
        }

        impl $owner {
            /// The functions of this table, under the names by which they are looked up.
            pub const FUNCTIONS: &'static [&'static str] = &[$(stringify!($name)),*];

            /// The same with the types of their parameters, for comparison with the vendor's header.
            #[doc(hidden)]
            pub const SIGNATURES: &'static [(&'static str, &'static [&'static str])] =
                &[$((stringify!($name), &[$(stringify!($type)),*])),*];
        }

        #[allow(non_snake_case, clippy::too_many_arguments)]
        impl $owner {
            $(
                $(#[$doc])*
                ///
                /// # Safety
                /// The arguments must satisfy the vendor's contract for this function.
                ///
                /// # Errors
                /// [`Error::Symbol`](crate::Error::Symbol) if the library lacks the function; otherwise what it
                /// returned, as an error.
                pub unsafe fn $name(&self, $($argument: $type),*) -> $crate::Result<()> {
                    const NAME: &std::ffi::CStr = {
                        match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                            Ok(name) => name,
                            Err(_) => unreachable!(),
                        }
                    };
                    let function = *self.table.$name.get_or_init(|| {
                        // SAFETY: the provider's contract says that this is the address of the function of this name,
                        // whose vendor declares it with this type.
                        self.provider.symbol(NAME).map(|address| unsafe {
                            std::mem::transmute::<
                                *const std::ffi::c_void,
                                unsafe extern "system" fn($($type),*) -> $code,
                            >(address)
                        })
                    });
                    let Some(function) = function else {
                        return Err($crate::Error::Symbol {
                            library: Self::LIBRARY,
                            provider: self.provider.describe(),
                            symbol: stringify!($name),
                            hint: Self::MISSING,
                        });
                    };
                    // SAFETY: the caller satisfies the function's contract.
                    self.check(stringify!($name), unsafe { function($($argument),*) })
                }
            )*
        }
    };
}
pub(crate) use table;
