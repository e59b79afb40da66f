//! Plans, and their distribution among the kernel's blocks.

use super::{plan::*, *};

use rand::RngExt;

const SMS: usize = 132;

#[test]
fn parameters_are_laid_out_as_in_the_kernel() {
    assert_eq!(size_of::<Problem>(), 704);
    assert_eq!(std::mem::offset_of!(Problem, c), 384);
    assert_eq!(std::mem::offset_of!(Problem, count), 456);
    assert_eq!(std::mem::offset_of!(Problem, list), 504);
    assert_eq!(std::mem::offset_of!(Problem, r_transposed), 640);
    assert_eq!(size_of::<Stretches>(), 144);
}

#[test]
fn sums_are_cut_where_results_are_few() {
    // The weights of a layer in Cl(3,0), 4096×512: four results of 512×512, sums over 1, 3, 3 and 1 times 4096 terms.
    let totals = [128, 384, 384, 128];
    let cut = plan(&totals, (512, 512), true, SMS, None);
    let parts = cut.parts.unwrap();
    assert_eq!(parts.len(), 5);
    assert!(parts.windows(2).all(|ends| ends[0] < ends[1]), "every result has a stretch: {parts:?}");
    for (total, ends) in totals.iter().zip(parts.windows(2)) {
        let stretches = (ends[1] - ends[0]) as usize;
        assert!(stretches * cut.share >= *total && (stretches - 1) * cut.share < *total, "all of it, once");
    }
    let tiles = 512usize.div_ceil(128) * 512usize.div_ceil(Tile::ALL[cut.tile].columns);
    assert!(tiles * parts[4] as usize > SMS / 2, "most multiprocessors have work");
    assert!(plan(&totals, (512, 512), false, SMS, None).parts.is_none(), "unless that is not possible");
    // Many results need no cutting.
    assert!(plan(&[16; 8], (4096, 512), true, SMS, None).parts.is_none());
}

#[test]
fn a_chosen_tile_is_taken() {
    for (number, tile) in Tile::ALL.into_iter().enumerate() {
        assert_eq!(plan(&[16; 8], (4096, 512), true, SMS, Some(tile)).tile, number);
    }
}

#[test]
fn what_comes_again_is_planned_once_and_the_same() {
    for (sizes, cut) in [((512, 512), true), ((512, 512), false), ((512, 1024), true)] {
        for chosen in [None, Some(Tile::ALL[2])] {
            let fresh = plan(&[128, 384, 384, 128], sizes, cut, SMS, chosen);
            for _ in 0..2 {
                assert_eq!(planned(&[128, 384, 384, 128], sizes, cut, SMS, chosen), fresh);
            }
        }
    }
}

#[test]
fn the_longest_come_first() {
    assert_eq!(longest_first(&[1, 3, 3, 1]), [1, 2, 0, 3]);
}

/// A product as the program of tests/units.cpp gets it.
#[derive(Debug)]
struct Case {
    rows: usize,
    columns: usize,
    steps: usize,
    /// Segments of each result, if they are listed.
    segments: Vec<usize>,
    listed: bool,
    cut: bool,
    tile: Tile,
    blocks: usize,
}

impl Case {
    fn random(rng: &mut impl RngExt) -> Self {
        let count = rng.random_range(1..40);
        let listed: bool = rng.random();
        let tile = Tile::ALL[rng.random_range(0..Tile::ALL.len())];
        Self {
            rows: rng.random_range(1..1500),
            columns: rng.random_range(1..3000),
            steps: rng.random_range(1..60),
            segments: (0..count).map(|_| if listed { rng.random_range(0..5) } else { 1 }).collect(),
            listed,
            cut: rng.random(),
            tile,
            blocks: rng.random_range(1..70) * tile.cluster,
        }
    }

    fn totals(&self) -> Vec<usize> {
        self.segments.iter().map(|segments| segments * self.steps).collect()
    }

    fn starts(&self) -> Vec<usize> {
        let ends = self.segments.iter().scan(0, |end, segments| {
            *end += segments;
            Some(*end)
        });
        std::iter::once(0).chain(ends).collect()
    }

    fn plan(&self) -> Plan {
        plan(&self.totals(), (self.rows, self.columns), self.cut, SMS, Some(self.tile))
    }

    fn line(&self) -> String {
        let (plan, count) = (self.plan(), self.segments.len());
        let ordered = plan.parts.is_none() && self.listed && count <= MOST_LISTED;
        let starts = if self.listed { self.starts() } else { Vec::new() };
        let list = plan.list(&self.totals(), ordered).map(|number| number.to_string()).join(" ");
        let starts_text: Vec<String> = starts.iter().map(usize::to_string).collect();
        format!(
            "{} {} {count} {} {} {} {} {} {} {} {} {} {list}\n",
            self.rows,
            self.columns,
            self.steps,
            plan.share,
            i32::from(plan.parts.is_some()),
            i32::from(ordered),
            self.tile.columns,
            self.tile.cluster,
            self.blocks,
            starts.len(),
            starts_text.join(" "),
        )
    }

    /// Every step of every tile of every result is computed once, by the right block, into a place of its own.
    fn check(&self, units: &[Vec<usize>]) {
        let plan = self.plan();
        let mut found = std::collections::BTreeMap::new();
        for unit in units {
            let [_, block, z, stretch, row, column, first, begin, end] = unit[..] else { panic!("{unit:?}") };
            let expected_first = if self.listed { self.starts()[z] } else { z };
            assert_eq!(first, expected_first, "{self:?}");
            assert_eq!(row / self.tile.rows % self.tile.cluster, block % self.tile.cluster, "{self:?}");
            let part = plan.parts.as_ref().map_or(0, |parts| {
                let (from, to) = (parts[z] as usize, parts[z + 1] as usize);
                assert!((from..to).contains(&stretch), "{self:?}: {unit:?}");
                stretch - from
            });
            let before = found.insert((z, row, column, part), (begin, end));
            assert_eq!(before, None, "{self:?}: {unit:?} comes twice");
        }
        let cluster_rows = self.tile.rows * self.tile.cluster;
        let rows = self.rows.div_ceil(cluster_rows) * self.tile.cluster;
        let columns = self.columns.div_ceil(self.tile.columns);
        let totals = self.totals();
        let parts = |z: usize| plan.parts.as_ref().map_or(1, |parts| (parts[z + 1] - parts[z]) as usize);
        let expected: usize = (0..totals.len()).map(|z| rows * columns * parts(z)).sum();
        assert_eq!(found.len(), expected, "{self:?}");
        for (z, total) in totals.iter().enumerate() {
            for tile in 0..rows * columns {
                let (row, column) = (tile / columns * self.tile.rows, tile % columns * self.tile.columns);
                let mut reached = 0;
                for part in 0..parts(z) {
                    let (begin, end) = found[&(z, row, column, part)];
                    assert_eq!(begin, reached, "{self:?}");
                    assert!(end <= begin + plan.share || plan.parts.is_none(), "{self:?}");
                    reached = end;
                }
                assert_eq!(reached, *total, "{self:?}");
            }
        }
    }
}

#[test]
fn every_step_of_every_tile_is_computed_once() {
    use rand::SeedableRng;
    use std::{
        io::Write,
        process::{Command, Stdio},
    };
    let here = &gradewise_testing::manifest_dir!();
    let folder = std::env::temp_dir().join(format!("gradewise-units-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join("units");
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let compiled = Command::new(&compiler)
        .args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(here.join("../../csrc"))
        .arg(here.join("tests/units.cpp"))
        .arg("-o")
        .arg(&program)
        .output();
    let compiled = match compiled {
        Ok(compiled) => compiled,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: no C++ compiler ({compiler:?})");
            return;
        }
        Err(error) => panic!("{compiler:?}: {error}"),
    };
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(11);
    let cases: Vec<Case> = (0..300).map(|_| Case::random(&mut rng)).collect();
    let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let input: String = cases.iter().map(Case::line).collect();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(output.status.success());
    let mut units: Vec<Vec<Vec<usize>>> = cases.iter().map(|_| Vec::new()).collect();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let unit: Vec<usize> = line.split(' ').map(|word| word.parse().unwrap()).collect();
        units[unit[0]].push(unit);
    }
    assert!(cases.iter().any(|case| case.plan().parts.is_some()), "some sums are cut");
    for (case, units) in cases.iter().zip(&units) {
        case.check(units);
    }
}
