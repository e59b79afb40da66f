//! Figures from reports, through the library and through the program `bench-plots`.

use gradewise_bench::{Case, Machine, Op, Pass, ProductRate, Report, Row, Work, plots};
use gradewise_core::{DType, Signature};
use gradewise_kernels::Compute;
use std::{fs, path::Path, process::Command};

fn report(rows: Vec<Row>) -> Report {
    let machine = Machine {
        device: "NVIDIA H200 <a&b>".to_owned(),
        compute_capability: "9.0".to_owned(),
        memory_bytes: 1 << 37,
        driver: None,
        cuda: "13.0".to_owned(),
    };
    let mut report = Report::new(machine, Some("0be66db".to_owned()));
    report.ceilings.copy_bytes_per_s = Some(4.24e12);
    let rate = |ours, vendor| ProductRate { ours: Some(ours), vendor };
    report.ceilings.products =
        [("tf32".to_owned(), rate(90e12, Some(356e12))), ("bf16".to_owned(), rate(170e12, None))].into();
    report.rows = rows;
    report
}

fn layer(batch: usize, features: usize) -> Case {
    Case::new(Op::Layer, Signature::CL3, (batch, features), DType::F32, Compute::Tf32)
}

fn row(case: Case, pass: Pass, ms: f64, peak_bytes: u64) -> Row {
    let work = Work::of(&case, pass).unwrap();
    Row {
        case,
        pass,
        variant: None,
        ms,
        low_ms: ms,
        high_ms: ms,
        runs: 30,
        peak_bytes: Some(peak_bytes),
        bytes: work.bytes,
        flops: work.flops,
        floor_ms: None,
        vendor_ms: None,
    }
}

/// Times that tell their cells: batch + features / 1000.
fn grid(factor: f64) -> Vec<Row> {
    let mut rows = Vec::new();
    for (batch, features) in [(1, 128), (1, 512), (8, 128), (8, 512), (64, 512)] {
        for pass in Pass::ALL {
            let ms = factor * (batch as f64 + features as f64 / 1000.0);
            rows.push(row(layer(batch, features), pass, ms, (factor * 1e6 * batch as f64) as u64));
        }
    }
    rows
}

/// The text of a figure, after a check that its elements nest, are closed, and have no unescaped signs.
fn texts(svg: &str) -> Vec<String> {
    assert!(svg.starts_with("<svg ") && svg.contains("xmlns=\"http://www.w3.org/2000/svg\""));
    let (mut open, mut texts, mut rest) = (Vec::new(), Vec::new(), svg);
    while let Some(start) = rest.find('<') {
        let words = rest[..start].trim();
        if !words.is_empty() {
            assert!(!words.contains('>'), "{words}");
            assert!(words.split('&').skip(1).all(|entity| entity.contains(';')), "{words}");
            texts.push(words.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"));
        }
        let end = start + rest[start..].find('>').expect("every tag ends");
        let tag = &rest[start + 1..end];
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        let name = |text: &str| text.split_whitespace().next().unwrap_or_default().to_owned();
        match (tag.strip_prefix('/'), tag.strip_suffix('/')) {
            (Some(closed), _) => assert_eq!(open.pop(), Some(name(closed))),
            (None, None) => open.push(name(tag)),
            (None, Some(_)) => {}
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "{open:?} {rest}");
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
    texts
}

#[test]
fn panels_hold_the_values_of_their_cells() {
    let ours = report(grid(1.0));
    let family = layer(0, 0);
    let alone = plots::panels(&ours, None, &family);
    assert_eq!(alone.len(), 4, "three passes and memory");
    assert_eq!((&alone[0].batches[..], &alone[0].features[..]), (&[1, 8, 64][..], &[128, 512][..]));
    assert_eq!(alone[0].unit, plots::Unit::Milliseconds);
    assert_eq!(alone[1].cells[1], [Some(8.128), Some(8.512)]);
    assert_eq!(alone[2].cells[2], [None, Some(64.512)], "128 features were not measured at batch 64");
    assert_eq!((alone[3].unit, alone[3].cells[1][0]), (plots::Unit::Megabytes, Some(8.0)));

    let mut slow = grid(3.0);
    slow.retain(|row| row.case != layer(8, 512) && row.pass != Pass::Graph);
    // The fastest variant of the reference is what counts.
    let eager =
        slow.iter().map(|row| Row { variant: Some("eager".into()), ms: 100.0 * row.ms, ..row.clone() });
    let reference = report(eager.collect::<Vec<_>>().into_iter().chain(slow.clone()).collect());
    let against = plots::panels(&ours, Some(&reference), &family);
    assert_eq!(against.len(), 3, "the reference has no graphs");
    assert_eq!(against[0].unit, plots::Unit::Ratio);
    assert!((against[0].cells[0][0].unwrap() - 3.0).abs() < 1e-12);
    assert_eq!(against[0].cells[1][1], None, "nothing to compare with");
    assert_eq!(against[2].cells[0][0], Some(3.0), "the reference takes three times the memory");
}

#[test]
fn figures_are_well_formed_and_show_the_values() {
    let folder = tempfile::tempdir().unwrap();
    let written = plots::draw(&report(grid(1.0)), None, folder.path()).unwrap();
    let names: Vec<_> = written.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["heatmap-layer-3_0_0-f32-tf32.svg", "roofline.svg"]);
    let map = texts(&fs::read_to_string(&written[0]).unwrap());
    for text in ["8.13", "64.5", "forward + backward, ms", "peak memory, MB", "512", "features", "batch"] {
        assert!(map.iter().any(|found| found == text), "{text} in {map:?}");
    }
    assert!(map.iter().any(|text| text.contains("NVIDIA H200 <a&b>")), "{map:?}");
    let roof = texts(&fs::read_to_string(&written[1]).unwrap());
    for text in ["copy 4.24 TB/s", "tf32 356 TFLOP/s", "bf16 170 TFLOP/s", "layer"] {
        assert!(roof.iter().any(|found| found == text), "{text} in {roof:?}");
    }
}

#[test]
fn what_cannot_be_drawn_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let mut empty = report(Vec::new());
    assert!(plots::draw(&empty, None, folder.path()).unwrap_err().to_string().contains("nothing to draw"));
    // Sizes that share neither batches nor features are no grid, but points of the roofline; without ceilings not even that.
    empty.rows = vec![row(layer(8, 8), Pass::Forward, 1.0, 1), row(layer(16, 16), Pass::Forward, 1.0, 1)];
    assert_eq!(plots::draw(&empty, None, folder.path()).unwrap().len(), 1);
    empty.ceilings = Default::default();
    assert!(plots::draw(&empty, None, folder.path()).is_err());
}

fn bench_plots(arguments: &[&str]) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_bench-plots")).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_program_draws_one_report_and_two() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let mut reference = report(grid(2.5));
    reference.library = "PyTorch 2.11.0".to_owned();
    report(grid(1.0)).write(path("ours.json")).unwrap();
    reference.write(path("theirs.json")).unwrap();
    let (ours, theirs, out) = (path("ours.json"), path("theirs.json"), path("figures/new"));
    let (ok, printed, errors) = bench_plots(&[&ours, "--out", &out]);
    assert!(ok, "{errors}");
    assert!(printed.lines().all(|line| Path::new(line).is_file()), "{printed}");
    let (ok, printed, errors) = bench_plots(&[&ours, "--against", &theirs, "--out", &out]);
    assert!(ok, "{errors}");
    let map = texts(&fs::read_to_string(printed.lines().next().unwrap()).unwrap());
    assert!(map.iter().any(|text| text == "2.50×"), "{map:?}");
    assert!(map.iter().any(|text| text.contains("against PyTorch 2.11.0")), "{map:?}");

    let (ok, _, errors) = bench_plots(&[&ours, "--against", &theirs, "--variant", "flash", "--out", &out]);
    assert!(!ok && errors.contains("no variant flash"), "{errors}");

    fs::write(path("other.json"), "{\"schema\": \"gradewise-bench/99\"}").unwrap();
    let (ok, _, errors) = bench_plots(&[&path("other.json"), "--out", &out]);
    assert!(!ok && errors.contains("gradewise-bench/99") && errors.contains("other.json"), "{errors}");
    let (ok, _, errors) = bench_plots(&[&path("absent.json"), "--out", &out]);
    assert!(!ok && errors.contains("absent.json"), "{errors}");
}
