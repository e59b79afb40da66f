use super::*;

/// A file that `scripts/make-jet-fixtures.py` made.
fn fixture(name: &str) -> Source {
    Source::open(&gradewise_testing::manifest_dir!().join("tests/data/jets").join(name)).unwrap()
}

fn all(source: &Source, name: &str) -> Vec<f64> {
    let rows = source.rows(name).unwrap().unwrap();
    rows.blocks(usize::MAX).unwrap().flat_map(|range| rows.numbers(range).unwrap()).collect()
}

#[test]
fn every_codec_over_element_sizes_and_orders_gives_back_the_numbers() {
    let source = fixture("codecs.h5");
    let expected: Vec<f64> = (0..90_001u64).map(|i| (i * i % 251) as f64).collect();
    let mut count = 0;
    for name in source.names("/").unwrap() {
        if name.starts_with("noise") {
            continue;
        }
        let length = if name.starts_with("blocks") { 90_001 } else { 20_001 };
        assert!(all(&source, &name) == expected[..length], "{name}");
        count += 1;
    }
    assert_eq!(count, 4 * 3 * 3 + 2);
}

#[test]
fn noise_is_read_however_it_is_stored() {
    let source = fixture("codecs.h5");
    let noise = all(&source, "noise");
    assert_eq!(noise.len(), 5000);
    assert_eq!(noise, all(&source, "noise_deflated"));
}

#[test]
fn blocks_cover_what_is_asked_for_and_hold_whole_chunks() {
    let source = fixture("codecs.h5");
    let rows = source.rows("zlib_f8_plain").unwrap().unwrap();
    assert_eq!(rows.shape(), [20_001]);
    let mut blocks = rows.blocks(10_000).unwrap();
    assert_eq!((blocks.next(), blocks.next()), (Some(0..10_000), None));
    let blocks = |bytes| -> Vec<_> { rows.blocks_of(bytes, usize::MAX).unwrap().collect() };
    assert_eq!(blocks(BLOCK).last(), Some(&(0..20_001)));
    assert_eq!(blocks(8 * 10_000), [0..18_000, 18_000..20_001]);
    assert_eq!(blocks(1), [0..9_000, 9_000..18_000, 18_000..20_001]);
    let part = rows.numbers(9_000..18_000).unwrap();
    assert_eq!(part[1], f64::from(9_001 * 9_001 % 251));
}

#[test]
fn absent_datasets_are_told_from_damaged_ones() {
    let source = fixture("codecs.h5");
    for name in ["nothing", "no/such", "zlib_f8_plain/inside"] {
        assert!(source.rows(name).unwrap().is_none(), "{name}");
    }
    assert!(source.names("/nothing").unwrap().is_empty());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text.h5");
    std::fs::write(&path, "E,px,py,pz\n").unwrap();
    let error = Source::open(&path).err().unwrap().to_string();
    assert!(error.contains("signature"), "{error}");
}
