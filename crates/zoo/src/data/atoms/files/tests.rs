use super::*;
use crate::data::{
    atoms::{ForceUnit, LengthUnit},
    npy,
};
use proptest::prelude::*;

const UNITS: Units =
    Units { energy: EnergyUnit::Format, length: LengthUnit::Angstrom, force: ForceUnit::Derived };

const WATER: &str = r#"3
Lattice="8 0 0 0 9 0 1 0 10" Properties=species:S:1:pos:R:3:forces:R:3:tags:I:1 energy=-14.5 stress="1 2 3 4 5 6" REF_energy=-15 pbc="T T F"
O 0 0 0 0.1 0.2 -0.3 0
H 0.96 0 0 -0.1 0 0 1
H -0.24 0.93 0 0 -0.2 0.3 1
"#;

fn parsed(text: &str, units: &Units) -> Result<Vec<Frame>, String> {
    extended_xyz::parse(text, units)
}

#[test]
fn a_frame_has_what_the_text_says() {
    let frames = parsed(&WATER.repeat(2), &Units { energy: EnergyUnit::ElectronVolt, ..UNITS }).unwrap();
    let [frame, other] = frames.as_slice() else { panic!("{}", frames.len()) };
    assert_eq!(frame, other);
    assert_eq!(
        (frame.numbers.as_slice(), frame.energy),
        (&[8, 1, 1][..], Some(-15.0)),
        "the reference value"
    );
    assert_eq!(frame.forces.as_ref().unwrap()[2], [0.0, -0.2, 0.3]);
    let cell = frame.cell.unwrap();
    assert_eq!((cell.vectors[2], cell.periodic), ([1.0, 0.0, 10.0], [true, true, false]));
    assert_eq!(frame.stress.unwrap(), [[1.0, 6.0, 5.0], [6.0, 2.0, 4.0], [5.0, 4.0, 3.0]]);
}

#[test]
fn units_are_converted() {
    let units = Units { energy: EnergyUnit::Hartree, length: LengthUnit::Bohr, force: ForceUnit::Derived };
    let frame = parsed(WATER, &units).unwrap().remove(0);
    assert!((frame.energy.unwrap() + 15.0 * 27.211_386).abs() < 1e-4);
    assert!((frame.positions[1][0] - 0.96 * 0.529_177).abs() < 1e-6);
    assert!((frame.forces.unwrap()[0][0] - 5.142_206_7).abs() < 1e-6);
    assert!((frame.cell.unwrap().volume() - 720.0 * 0.529_177_2f64.powi(3)).abs() < 1e-3);
    let virial = WATER.replace("stress", "virial");
    let frame = parsed(&virial, &Units { energy: EnergyUnit::ElectronVolt, ..UNITS }).unwrap().remove(0);
    assert!((frame.stress.unwrap()[0][0] + 1.0 / 720.0).abs() < 1e-15, "the stress is −virial over volume");
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let lines: Vec<&str> = WATER.lines().collect();
    for (text, part) in [
        (lines[..4].join("\n"), "truncated: frame 0 (line 1) has 3 atoms, and the file ends after 2"),
        (lines[..1].join("\n"), "truncated"),
        (WATER.replace("H 0.96", "Q 0.96"), "line 4: the species `Q` is no chemical element"),
        (
            WATER.replace("H 0.96 0 0 -0.1 0 0 1", "H 0.96 0 0 -0.1 0 0"),
            "line 4: 7 columns, where Properties of the frame names 8",
        ),
        (WATER.replace("0.96", "nan"), "the position of atom 1"),
        (WATER.replace("-0.1 0 0 1", "-0.1 0 inf 1"), "the force on atom 1"),
        (WATER.replace("REF_energy=-15", "REF_energy=x"), "line 2: REF_energy is `x`"),
        (WATER.replace("8 0 0 0 9 0 1 0 10", "8 0 0 8 0 0 1 0 10"), "spans no volume"),
        (WATER.replace("8 0 0 0 9 0 1 0 10", "8 0 0 0 9 0 1 0"), "Lattice has 8 numbers"),
        (WATER.replace("forces:R:3", "forces:R:2"), "forces has 2 columns, expected 3"),
        (WATER.replace("pos:R:3", "place:R:3"), "names no pos"),
        (WATER.replacen('3', "three", 1), "line 1: `three` is no number of atoms"),
        (format!("{WATER}\n{WATER}"), "line 7: a frame after a blank line"),
        ("0\n\n".to_owned(), "no atoms"),
        (WATER.replace("Lattice=\"8 0 0 0 9 0 1 0 10\" ", ""), "there is no Lattice"),
    ] {
        let error = parsed(&text, &UNITS).unwrap_err();
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(parsed("", &UNITS).unwrap().is_empty());
}

/// A ZIP archive of stored files, as `numpy.savez` writes it.
fn zipped(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    let short = |x: usize| (x as u16).to_le_bytes().to_vec();
    let long = |x: usize| (x as u32).to_le_bytes().to_vec();
    for (name, data) in files {
        let start = out.len();
        let common =
            [short(20), short(0), short(0), long(0), long(0), long(data.len()), long(data.len())].concat();
        out.extend(
            [&b"PK\x03\x04"[..], &common, &short(name.len()), &short(0), name.as_bytes(), data].concat(),
        );
        directory.extend(
            [
                &b"PK\x01\x02"[..],
                &short(20),
                &common,
                &short(name.len()),
                &[0; 12],
                &long(start),
                name.as_bytes(),
            ]
            .concat(),
        );
    }
    let at = out.len();
    let count = short(files.len());
    out.extend(&directory);
    out.extend(
        [&b"PK\x05\x06"[..], &[0; 4], &count, &count, &long(directory.len()), &long(at), &short(0)].concat(),
    );
    out
}

fn array(shape: &[usize], values: &[f64]) -> Vec<u8> {
    npy::encode(shape, values).unwrap()
}

fn trajectory(names: [&str; 4], energies: &[usize]) -> Vec<u8> {
    let coords: Vec<f64> = (0..18).map(f64::from).collect();
    let parts = [array(&[3], &[8.0, 1.0, 1.0]), array(&[2, 3, 3], &coords), array(energies, &[-1.0, -2.0])];
    let files: Vec<(String, Vec<u8>)> = names
        .iter()
        .zip([&parts[0], &parts[1], &parts[2], &parts[1]])
        .map(|(n, p)| (format!("{n}.npy"), p.clone()))
        .collect();
    let files: Vec<(&str, Vec<u8>)> =
        files.iter().map(|(name, data)| (name.as_str(), data.clone())).collect();
    zipped(&files)
}

#[test]
fn archives_of_both_kinds_have_kilocalories() {
    let folder = tempfile::tempdir().unwrap();
    for (names, energies) in
        [(["nuclear_charges", "coords", "energies", "forces"], &[2][..]), (["z", "R", "E", "F"], &[2, 1])]
    {
        let path = folder.path().join("water.npz");
        std::fs::write(&path, trajectory(names, energies)).unwrap();
        let frames = read(&path, &UNITS).unwrap();
        assert_eq!((frames.len(), frames[1].numbers.as_slice()), (2, &[8, 1, 1][..]));
        assert_eq!(frames[1].positions[2], [15.0, 16.0, 17.0]);
        assert!((frames[1].energy.unwrap() + 2.0 * 0.043_364_1).abs() < 1e-7);
        assert!((frames[0].forces.as_ref().unwrap()[0][2] - 2.0 * 0.043_364_1).abs() < 1e-7);
    }
}

#[test]
fn archives_that_are_damaged_or_foreign_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let whole = trajectory(["z", "R", "E", "F"], &[2]);
    let path = folder.path().join("a.npz");
    let refused = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        read(&path, &UNITS).unwrap_err().to_string()
    };
    assert!(refused(&whole[..whole.len() - 40]).contains("truncated or damaged"));
    assert!(refused(b"").contains("truncated or damaged"));
    assert!(refused(&trajectory(["Z", "X", "E", "F"], &[2])).contains("it has the arrays Z, X, E, F"));
    let path = folder.path().join("a.pdb");
    assert!(read(&path, &UNITS).unwrap_err().to_string().contains("must end in .xyz"));
}

proptest! {
    /// No text makes the reader panic.
    #[test]
    fn any_text_is_read_or_refused(text in "[0-9a-zA-Z=\" .\\[\\]{}':\n-]{0,200}", cut in 0usize..200) {
        let _ = parsed(&text, &UNITS);
        let _ = parsed(&WATER[..cut.min(WATER.len())], &UNITS);
        let _ = archived::parse(text.as_bytes(), Path::new("x"), &UNITS);
    }

    /// Damage anywhere in an archive is an error or another value, never a panic.
    #[test]
    fn any_damage_is_survived(at in 0usize..400, byte: u8) {
        let mut bytes = trajectory(["z", "R", "E", "F"], &[2]);
        let at = at % bytes.len();
        bytes[at] = byte;
        let _ = archived::parse(&bytes, Path::new("x"), &UNITS);
    }

    /// What is written is read again, bit for bit.
    #[test]
    fn what_is_written_is_read(x in prop::array::uniform9(-1e3f64..1e3), energy in -1e5f64..1e5) {
        let rows = [[x[0], x[1], x[2]], [x[3], x[4], x[5]], [x[6], x[7], x[8]]];
        let frame = Frame {
            numbers: vec![6, 17, 92],
            positions: rows.to_vec(),
            cell: Some(crate::data::atoms::Cell { vectors: rows, periodic: [false; 3] }),
            energy: Some(energy),
            forces: Some(rows.to_vec()),
            stress: Some(rows),
        };
        let mut text = String::new();
        write_extended_xyz(&frame, None, "", &mut text);
        prop_assert_eq!(parsed(&text, &Units { energy: EnergyUnit::ElectronVolt, ..UNITS }).unwrap(), vec![frame]);
    }
}
