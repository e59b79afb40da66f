//! Philox4x32-10: a generator without state, which maps a counter and a key to random bits (Salmon et al. 2011,
//! "Parallel random numbers: as easy as 1, 2, 3").

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// 128 random bits for a counter and a key of 64 bits; `stream` is the counter's upper half.
pub(super) fn random(counter: u64, stream: u64, key: u64) -> [u32; 4] {
    let words = |value: u64| [value as u32, (value >> 32) as u32];
    let ([c0, c1], [c2, c3]) = (words(counter), words(stream));
    permute([c0, c1, c2, c3], words(key))
}

fn permute(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    let product = |a: u32, b: u32| {
        let wide = u64::from(a) * u64::from(b);
        ((wide >> 32) as u32, wide as u32)
    };
    for _ in 0..ROUNDS {
        let (high0, low0) = product(MULTIPLIERS[0], counter[0]);
        let (high1, low1) = product(MULTIPLIERS[1], counter[2]);
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers_of_the_authors() {
        let cases = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, expected) in cases {
            assert_eq!(permute(counter, key), expected);
        }
    }
}
