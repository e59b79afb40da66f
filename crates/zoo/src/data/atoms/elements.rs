//! The chemical elements: symbols and covalent radii.

/// Number of elements; atomic numbers go from 1 to this.
pub const ELEMENTS: usize = 118;

const SYMBOLS: [&str; ELEMENTS] = [
    "H", "He", "Li", "Be", "B", "C", "N", "O", "F", "Ne", "Na", "Mg", "Al", "Si", "P", "S", "Cl", "Ar", "K",
    "Ca", "Sc", "Ti", "V", "Cr", "Mn", "Fe", "Co", "Ni", "Cu", "Zn", "Ga", "Ge", "As", "Se", "Br", "Kr",
    "Rb", "Sr", "Y", "Zr", "Nb", "Mo", "Tc", "Ru", "Rh", "Pd", "Ag", "Cd", "In", "Sn", "Sb", "Te", "I", "Xe",
    "Cs", "Ba", "La", "Ce", "Pr", "Nd", "Pm", "Sm", "Eu", "Gd", "Tb", "Dy", "Ho", "Er", "Tm", "Yb", "Lu",
    "Hf", "Ta", "W", "Re", "Os", "Ir", "Pt", "Au", "Hg", "Tl", "Pb", "Bi", "Po", "At", "Rn", "Fr", "Ra",
    "Ac", "Th", "Pa", "U", "Np", "Pu", "Am", "Cm", "Bk", "Cf", "Es", "Fm", "Md", "No", "Lr", "Rf", "Db",
    "Sg", "Bh", "Hs", "Mt", "Ds", "Rg", "Cn", "Nh", "Fl", "Mc", "Lv", "Ts", "Og",
];

/// Radii of single covalent bonds in hundredths of an Å (Pyykkö and Atsumi 2009, doi:10.1002/chem.200800987).
const RADII: [u8; ELEMENTS] = [
    32, 46, 133, 102, 85, 75, 71, 63, 64, 67, 155, 139, 126, 116, 111, 103, 99, 96, 196, 171, 148, 136, 134,
    122, 119, 116, 111, 110, 112, 118, 124, 121, 121, 116, 114, 117, 210, 185, 163, 154, 147, 138, 128, 125,
    125, 120, 128, 136, 142, 140, 140, 136, 133, 131, 232, 196, 180, 163, 176, 174, 173, 172, 168, 169, 168,
    167, 166, 165, 164, 170, 162, 152, 146, 137, 131, 129, 122, 123, 124, 133, 144, 144, 151, 145, 147, 142,
    223, 201, 186, 175, 169, 170, 171, 172, 166, 166, 168, 168, 165, 167, 173, 176, 161, 157, 149, 143, 141,
    134, 129, 128, 121, 122, 136, 143, 162, 175, 165, 157,
];

/// Standard atomic weights (IUPAC 2021, abridged), of elements without one the mass number of a long-lived isotope.
const MASSES: [f64; ELEMENTS] = [
    1.008,
    4.002_602,
    6.94,
    9.012_183_1,
    10.81,
    12.011,
    14.007,
    15.999,
    18.998_403_162,
    20.179_7,
    22.989_769_28,
    24.305,
    26.981_538_4,
    28.085,
    30.973_761_998,
    32.06,
    35.45,
    39.95,
    39.098_3,
    40.078,
    44.955_907,
    47.867,
    50.941_5,
    51.996_1,
    54.938_043,
    55.845,
    58.933_194,
    58.693_4,
    63.546,
    65.38,
    69.723,
    72.630,
    74.921_595,
    78.971,
    79.904,
    83.798,
    85.467_8,
    87.62,
    88.905_838,
    91.224,
    92.906_37,
    95.95,
    97.0,
    101.07,
    102.905_49,
    106.42,
    107.868_2,
    112.414,
    114.818,
    118.710,
    121.760,
    127.60,
    126.904_47,
    131.293,
    132.905_451_96,
    137.327,
    138.905_47,
    140.116,
    140.907_66,
    144.242,
    145.0,
    150.36,
    151.964,
    157.249,
    158.925_354,
    162.500,
    164.930_329,
    167.259,
    168.934_219,
    173.045,
    174.966_69,
    178.486,
    180.947_88,
    183.84,
    186.207,
    190.23,
    192.217,
    195.084,
    196.966_570,
    200.592,
    204.38,
    207.2,
    208.980_40,
    209.0,
    210.0,
    222.0,
    223.0,
    226.0,
    227.0,
    232.037_7,
    231.035_88,
    238.028_91,
    237.0,
    244.0,
    243.0,
    247.0,
    247.0,
    251.0,
    252.0,
    257.0,
    258.0,
    259.0,
    262.0,
    267.0,
    268.0,
    269.0,
    270.0,
    269.0,
    277.0,
    281.0,
    282.0,
    285.0,
    286.0,
    290.0,
    290.0,
    293.0,
    294.0,
    294.0,
];

/// Elements whose atoms are not bound to others in their usual state.
const NOBLE: [u8; 7] = [2, 10, 18, 36, 54, 86, 118];

/// The symbol of an atomic number, such as `"C"` of 6; `None` beyond the known elements.
pub fn symbol(number: u8) -> Option<&'static str> {
    SYMBOLS.get(usize::from(number).checked_sub(1)?).copied()
}

/// The atomic number of a symbol, in any case: 6 of `"C"`.
pub fn number(symbol: &str) -> Option<u8> {
    let place = SYMBOLS.iter().position(|known| known.eq_ignore_ascii_case(symbol))?;
    u8::try_from(place + 1).ok()
}

/// The radius of a single covalent bond in Å; `None` for noble gases and beyond the known elements.
pub(super) fn radius(number: u8) -> Option<f64> {
    if NOBLE.contains(&number) {
        return None;
    }
    Some(f64::from(*RADII.get(usize::from(number).checked_sub(1)?)?) / 100.0)
}

/// The mass of an atom, in unified atomic mass units; `None` beyond the known elements.
pub fn mass(number: u8) -> Option<f64> {
    MASSES.get(usize::from(number).checked_sub(1)?).copied()
}

/// The radius of a single covalent bond in Å by atomic number, of noble gases, too; that of atomic number 0, which is no element, is 1.
pub fn covalent_radii() -> Vec<f64> {
    std::iter::once(1.0).chain(RADII.iter().map(|&radius| f64::from(radius) / 100.0)).collect()
}

/// Symbols of atomic numbers, in words: `C, H and O`.
pub fn listed(numbers: impl IntoIterator<Item = u8>) -> String {
    let names: Vec<&str> = numbers.into_iter().map(|number| symbol(number).unwrap_or("?")).collect();
    match names.split_last() {
        None => "none".to_owned(),
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_and_numbers_are_inverse() {
        for number in 1..=ELEMENTS as u8 {
            assert_eq!(super::number(symbol(number).unwrap()), Some(number));
        }
        assert_eq!((symbol(0), symbol(119), number("Xx"), number("cL")), (None, None, None, Some(17)));
        assert_eq!(
            (symbol(26), symbol(79), radius(6), radius(18)),
            (Some("Fe"), Some("Au"), Some(0.75), None)
        );
        assert_eq!([mass(1), mass(26), mass(92), mass(118)], [1.008, 55.845, 238.028_91, 294.0].map(Some));
        assert_eq!((mass(0), mass(119)), (None, None));
        // Masses grow with the number but for the known inversions, such as Ar and K.
        let falls = (1..118).filter(|&z| mass(z) > mass(z + 1)).collect::<Vec<u8>>();
        assert_eq!(falls, [18, 27, 52, 90, 92, 94, 107], "{falls:?}");
        assert_eq!(listed([1, 6, 8]), "H, C and O");
    }
}
