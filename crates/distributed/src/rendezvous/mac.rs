//! HMAC-SHA256 (RFC 2104), and random bytes of the operating system.

use sha2::{Digest, Sha256};
use std::io;

/// Bytes that SHA-256 takes at a time.
const BLOCK: usize = 64;
/// Bytes of a code.
pub const CODE: usize = 32;

/// A code of authentication under way. The key may be of any length.
pub struct Mac {
    inner: Sha256,
    outer: Sha256,
}

impl Mac {
    pub fn new(key: &[u8]) -> Self {
        let mut block = [0; BLOCK];
        if key.len() > BLOCK {
            block[..CODE].copy_from_slice(&Sha256::digest(key));
        } else {
            block[..key.len()].copy_from_slice(key);
        }
        let padded = |pad: u8| Sha256::new_with_prefix(block.map(|byte| byte ^ pad));
        Self { inner: padded(0x36), outer: padded(0x5c) }
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.inner.update(bytes);
    }

    pub fn finish(self) -> [u8; CODE] {
        self.outer.chain_update(self.inner.finalize()).finalize().into()
    }

    /// Whether `code` is the code. Compares all bytes whatever they are, so that the time says nothing about where the first
    /// difference is.
    pub fn is(self, code: &[u8]) -> bool {
        let differences =
            self.finish().iter().zip(code).fold(0, |all, (a, b)| std::hint::black_box(all | (a ^ b)));
        code.len() == CODE && differences == 0
    }
}

/// Random bytes for tokens and numbers that are used once.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| io::Error::other(format!("the operating system's random numbers: {error}")))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::{Mac, random};

    fn code(key: &[u8], parts: &[&[u8]]) -> String {
        let mut mac = Mac::new(key);
        parts.iter().for_each(|part| mac.update(part));
        mac.finish().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Test cases 1, 2, 3, 6 and 7 of RFC 4231: keys shorter and longer than a block, messages longer than a block.
    #[test]
    fn codes_are_those_of_rfc_4231() {
        let long = b"Test Using Larger Than Block-Size Key - Hash Key First";
        let longer = b"This is a test using a larger than block-size key and a larger than block-size data. The key needs to be \
                       hashed before being used by the HMAC algorithm.";
        let cases: [(&[u8], &[&[u8]], &str); 5] = [
            (
                &[0x0b; 20],
                &[b"Hi ", b"There"],
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
            ),
            (
                b"Jefe",
                &[b"what do ya want ", b"", b"for nothing?"],
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (&[0xaa; 20], &[&[0xdd; 50]], "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"),
            (&[0xaa; 131], &[long], "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"),
            (&[0xaa; 131], &[longer], "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"),
        ];
        for (key, parts, expected) in cases {
            assert_eq!(code(key, parts), expected);
        }
    }

    #[test]
    fn a_code_is_recognised_and_no_other() {
        let mac = || {
            let mut mac = Mac::new(b"token");
            mac.update(b"message");
            mac
        };
        let code = mac().finish();
        assert!(mac().is(&code));
        for byte in 0..code.len() {
            for bit in 0..8 {
                let mut other = code;
                other[byte] ^= 1 << bit;
                assert!(!mac().is(&other));
            }
        }
        assert!(!mac().is(&code[..31]) && !mac().is(&[]) && !mac().is(&[code.as_slice(), &[0]].concat()));
    }

    #[test]
    fn random_bytes_do_not_repeat() {
        let (first, second): ([u8; 32], [u8; 32]) = (random().unwrap(), random().unwrap());
        assert!(first != second && first != [0; 32]);
    }
}
