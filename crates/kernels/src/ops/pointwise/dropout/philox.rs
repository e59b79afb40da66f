//! Philox4x32-10: a generator without state, which maps a counter and a key to random bits (Salmon et al. 2011,
//! "Parallel random numbers: as easy as 1, 2, 3").

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// Counters permuted side by side, in vector registers.
pub(in crate::ops) const LANES: usize = 16;

/// The random words of [`LANES`] consecutive counters: word `w` of counter `first + lane` is `[w][lane]`. `stream` is
/// the upper half of the counters.
#[inline(always)]
pub(in crate::ops) fn random(first: u64, stream: u64, key: u64) -> [[u32; LANES]; 4] {
    let counter = |lane: usize| first.wrapping_add(lane as u64);
    let low = std::array::from_fn(|lane| counter(lane) as u32);
    let high = std::array::from_fn(|lane| (counter(lane) >> 32) as u32);
    let stream = [stream as u32, (stream >> 32) as u32];
    permute([low, high, [stream[0]; LANES], [stream[1]; LANES]], [key as u32, (key >> 32) as u32])
}

/// The keys of the rounds.
pub(in crate::ops) fn round_keys(key: u64) -> [[u32; 2]; ROUNDS] {
    let word = |round: usize, half: usize| {
        ((key >> (32 * half)) as u32).wrapping_add(WEYL[half].wrapping_mul(round as u32))
    };
    std::array::from_fn(|round| [word(round, 0), word(round, 1)])
}

#[inline(always)]
fn permute(mut counters: [[u32; LANES]; 4], mut key: [u32; 2]) -> [[u32; LANES]; 4] {
    for _ in 0..ROUNDS {
        let [c0, c1, c2, c3] = counters;
        for lane in 0..LANES {
            let first = u64::from(MULTIPLIERS[0]) * u64::from(c0[lane]);
            let second = u64::from(MULTIPLIERS[1]) * u64::from(c2[lane]);
            counters[0][lane] = (second >> 32) as u32 ^ c1[lane] ^ key[0];
            counters[1][lane] = second as u32;
            counters[2][lane] = (first >> 32) as u32 ^ c3[lane] ^ key[1];
            counters[3][lane] = first as u32;
        }
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counters
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
            let counters = counter.map(|word: u32| [word; LANES]);
            assert_eq!(permute(counters, key), expected.map(|word: u32| [word; LANES]));
        }
    }

    #[test]
    fn round_keys_are_those_that_permute_adds_up() {
        let key = 0xffff_fff0_1234_5678;
        let [mut low, mut high] = [key as u32, (key >> 32) as u32];
        for keys in round_keys(key) {
            assert_eq!(keys, [low, high]);
            (low, high) = (low.wrapping_add(WEYL[0]), high.wrapping_add(WEYL[1]));
        }
    }

    #[test]
    fn lanes_are_consecutive_counters() {
        let first = (7 << 32) - 5;
        let together = random(first, 1 << 40, 3);
        for lane in 0..LANES {
            let alone = random(first + lane as u64, 1 << 40, 3);
            assert_eq!(together.map(|word| word[lane]), alone.map(|word| word[0]));
        }
    }
}
