//! Errors as codes, with their text kept for the thread.

use std::{
    cell::RefCell,
    ffi::{CString, c_char, c_int},
    panic::{AssertUnwindSafe, catch_unwind},
};

/// The codes of the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// `GRADEWISE_INPUT`
    Input = 1,
    /// `GRADEWISE_FAILED`
    Failed = 2,
    /// `GRADEWISE_FAULT`
    Fault = 3,
}

/// Why a call is not served.
#[derive(Debug)]
pub struct Refusal {
    pub code: Code,
    pub message: String,
}

impl Refusal {
    /// An argument that cannot be right.
    pub fn input(message: impl Into<String>) -> Self {
        Self { code: Code::Input, message: message.into() }
    }
}

impl<E: Into<gradewise_runner::Error>> From<E> for Refusal {
    fn from(error: E) -> Self {
        let error: gradewise_runner::Error = error.into();
        let code = if error.exit_code() == 2 { Code::Input } else { Code::Failed };
        Self { code, message: error.to_string() }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// The code of a call, whose error is kept. A panic, which must not leave the library, is a fault.
pub fn guarded(work: impl FnOnce() -> Result<(), Refusal>) -> c_int {
    let refusal = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return 0,
        Ok(Err(refusal)) => refusal,
        Err(payload) => {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Refusal { code: Code::Fault, message: format!("a fault of gradewise, to be reported: {text}") }
        }
    };
    // A null byte would end the text.
    let text = CString::new(refusal.message.replace('\0', "\u{fffd}")).unwrap_or_default();
    LAST.replace(text);
    refusal.code as c_int
}

/// The text of the last error of this thread.
pub fn last() -> *const c_char {
    LAST.with_borrow(|text| text.as_ptr())
}
