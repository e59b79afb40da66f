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
        assert_eq!(listed([1, 6, 8]), "H, C and O");
    }
}
