//! Arrays and texts behind pointers.

use crate::error::Refusal;
use std::{
    ffi::{CStr, c_char},
    slice,
};

/// The elements behind a pointer.
///
/// # Errors
/// A null pointer, unless there are no elements.
///
/// # Safety
/// The pointer is null, or `count` elements are behind it that do not change while they are used.
pub unsafe fn read_array<'a, T>(
    name: &'static str,
    pointer: *const T,
    count: usize,
) -> Result<&'a [T], Refusal> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(Refusal::input(format!("{name} is a null pointer, expected {count} elements")));
    }
    // SAFETY: it is not null, and by the contract there are as many elements.
    Ok(unsafe { slice::from_raw_parts(pointer, count) })
}

/// The text behind a pointer.
///
/// # Errors
/// A null pointer; a text that is not UTF-8.
///
/// # Safety
/// The pointer is null, or a text behind it ends in a null byte and does not change while it is used.
pub unsafe fn read_text<'a>(name: &'static str, pointer: *const c_char) -> Result<&'a str, Refusal> {
    if pointer.is_null() {
        return Err(Refusal::input(format!("{name} is a null pointer, expected a text")));
    }
    // SAFETY: it is not null, and by the contract it ends.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Refusal::input(format!("{name} is {text:?}, expected UTF-8")))
}

/// Writes values behind a pointer, unless it is null.
///
/// # Safety
/// The pointer is null, or as many elements as there are values can be written behind it.
pub unsafe fn write_array(pointer: *mut f64, values: &[f64]) {
    if !pointer.is_null() {
        // SAFETY: by the contract; the values are in memory of our own.
        unsafe { slice::from_raw_parts_mut(pointer, values.len()) }.copy_from_slice(values);
    }
}
