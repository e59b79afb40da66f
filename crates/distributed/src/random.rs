//! Random bytes of the operating system, for tokens and numbers that are used once.

use std::io;

/// `N` bytes.
///
/// # Errors
/// The operating system has none.
pub(crate) fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| io::Error::other(format!("the operating system's random numbers: {error}")))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn they_do_not_repeat() {
        let (first, second): ([u8; 32], [u8; 32]) = (bytes().unwrap(), bytes().unwrap());
        assert!(first != second && first != [0; 32]);
    }
}
