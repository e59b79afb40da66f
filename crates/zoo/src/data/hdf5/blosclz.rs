//! BloscLZ, blosc's own codec, derived from FastLZ: literals and copies of earlier output.

/// Added to the encoded length of a copy.
const SHORTEST_COPY: usize = 3;
/// Distances from this value on are encoded in two extra bytes.
const FAR: usize = 8192;

/// Decodes `input` into `output`; `None` if `input` is malformed or does not decode to exactly the length of `output`.
pub(super) fn decompress(input: &[u8], output: &mut [u8]) -> Option<()> {
    let mut input = input.iter().copied();
    let mut filled = 0;
    // The first code is always a literal, so its copy bits are masked.
    let mut code = usize::from(input.next()? & 31);
    loop {
        if code < 32 {
            let end = filled + code + 1;
            for slot in output.get_mut(filled..end)? {
                *slot = input.next()?;
            }
            filled = end;
        } else {
            let mut length = (code >> 5) - 1;
            if length == 6 {
                loop {
                    let more = input.next()?;
                    length += usize::from(more);
                    if more != 255 {
                        break;
                    }
                }
            }
            let (high, low) = ((code & 31) << 8, usize::from(input.next()?));
            let distance = if high == 31 << 8 && low == 255 {
                FAR + (usize::from(input.next()?) << 8) + usize::from(input.next()?)
            } else {
                high + low + 1
            };
            let end = filled + length + SHORTEST_COPY;
            let start = filled.checked_sub(distance)?;
            output.get(..end)?;
            if distance >= end - filled {
                output.copy_within(start..start + (end - filled), filled);
            } else {
                // Source and destination overlap: the copy repeats bytes it has just written.
                for position in filled..end {
                    output[position] = output[position - distance];
                }
            }
            filled = end;
        }
        match input.next() {
            Some(next) => code = next.into(),
            None => break,
        }
    }
    (filled == output.len()).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decompressed<const N: usize>(input: &[u8]) -> Option<[u8; N]> {
        let mut output = [0; N];
        decompress(input, &mut output).map(|()| output)
    }

    #[test]
    fn literals_and_copies_near_far_and_long() {
        assert_eq!(decompressed(&[2, 7, 8, 9]), Some([7, 8, 9]));
        // Four bytes from a distance of two, then one literal.
        assert_eq!(decompressed(&[1, 7, 8, 2 << 5, 1, 0, 5]), Some([7, 8, 7, 8, 7, 8, 5]));
        // A run of 3 + 6 + 255 + 4 bytes.
        let mut run = [9; 269];
        run[0] = 9;
        assert_eq!(decompressed(&[0, 9, 7 << 5, 255, 4, 0]), Some(run));
        // Beyond the short distances: 1 literal, 8193 more of it, then 3 bytes from the very first.
        let mut far = vec![0u8, 3, 7 << 5];
        far.extend([255; 32]);
        far.extend([8193 - 9 - 32 * 255u16].map(|rest| rest as u8));
        far.extend([0, (1 << 5) | 31, 255, 0, 2]);
        assert_eq!(decompressed::<8197>(&far), Some([3; 8197]));
    }

    #[test]
    fn what_does_not_fill_the_output_is_refused() {
        assert_eq!(decompressed::<3>(&[]), None);
        assert_eq!(decompressed::<4>(&[2, 7, 8, 9]), None, "too little");
        assert_eq!(decompressed::<2>(&[2, 7, 8, 9]), None, "too much");
        assert_eq!(decompressed::<3>(&[2, 7, 8]), None, "cut off");
        assert_eq!(decompressed::<4>(&[0, 7, 1 << 5, 1]), None, "from before the start");
        assert_eq!(decompressed::<3>(&[0, 7, 1 << 5, 0]), None, "a copy past the end");
        assert_eq!(decompressed::<9>(&[0, 7, 7 << 5, 255]), None, "a length cut off");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(input: Vec<u8>, length in 0usize..600) {
            let mut output = vec![0; length];
            let _ = decompress(&input, &mut output);
        }
    }
}
