//! Random programs against a model in plain vectors, with and without a call that fails.

mod common;

use common::*;
use gradewise_fake_driver::Fake;
use gradewise_ffi::{DeviceMemory, Result, Stream};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Allocate { bytes: usize, pooled: bool },
    Free(usize),
    Fill(usize, u8),
    Write { block: usize, offset: usize, bytes: Vec<u8> },
    Copy { to: usize, to_offset: usize, from: usize, from_offset: usize, bytes: usize },
    Read(usize),
    Synchronize,
}

fn step() -> impl Strategy<Value = Step> {
    let index = 0..8usize;
    prop_oneof![
        3 => (0..200usize, any::<bool>()).prop_map(|(bytes, pooled)| Step::Allocate { bytes, pooled }),
        2 => index.clone().prop_map(Step::Free),
        2 => (index.clone(), any::<u8>()).prop_map(|(block, byte)| Step::Fill(block, byte)),
        2 => (index.clone(), 0..100usize, prop::collection::vec(any::<u8>(), 0..100))
            .prop_map(|(block, offset, bytes)| Step::Write { block, offset, bytes }),
        2 => (index.clone(), 0..100usize, index.clone(), 0..100usize, 0..100usize).prop_map(
            |(to, to_offset, from, from_offset, bytes)| Step::Copy { to, to_offset, from, from_offset, bytes }
        ),
        1 => index.prop_map(Step::Read),
        1 => Just(Step::Synchronize),
    ]
}

/// Blocks on the device, and beside each what it must hold.
type Blocks = Vec<(DeviceMemory, Vec<u8>)>;

/// Does one step on both sides. After an error the model is as it was, and so must the device be.
fn apply(step: &Step, stream: &Stream, blocks: &mut Blocks) -> Result<()> {
    let count = blocks.len();
    match step {
        Step::Synchronize => return stream.synchronize(),
        Step::Allocate { bytes, pooled } => {
            let allocate = if *pooled { DeviceMemory::new } else { DeviceMemory::immediate };
            let block = allocate(stream, *bytes)?;
            block.fill(0)?;
            blocks.push((block, vec![0; *bytes]));
        }
        _ if count == 0 => {}
        Step::Free(block) => drop(blocks.swap_remove(block % count)),
        Step::Fill(block, byte) => {
            let (device, model) = &mut blocks[block % count];
            device.fill(*byte)?;
            model.fill(*byte);
        }
        Step::Write { block, offset, bytes } => {
            let (device, model) = &mut blocks[block % count];
            let range = *offset..*offset + bytes.len();
            let fits = range.end <= model.len();
            let result = device.write(*offset, bytes);
            if fits {
                result?;
                model[range].copy_from_slice(bytes);
            } else {
                assert!(result.is_err());
            }
        }
        Step::Copy { to, to_offset, from, from_offset, bytes } => {
            let (to, from) = (to % count, from % count);
            if to == from {
                return Ok(()); // the ranges must not overlap
            }
            let source = &blocks[from];
            let fits = to_offset + bytes <= blocks[to].1.len() && from_offset + bytes <= source.1.len();
            let result = blocks[to].0.copy_from(*to_offset, &source.0, *from_offset, *bytes);
            if fits {
                result?;
                let moved = source.1[*from_offset..from_offset + bytes].to_vec();
                blocks[to].1[*to_offset..to_offset + bytes].copy_from_slice(&moved);
            } else {
                assert!(result.is_err());
            }
        }
        Step::Read(block) => {
            let (device, model) = &blocks[block % count];
            let mut bytes = vec![1; model.len()];
            device.read(0, &mut bytes)?;
            assert_eq!(bytes, *model);
        }
    }
    Ok(())
}

/// Runs the program; every error but the one that was asked for is a failure of the test.
fn run(fake: &Fake, program: &[Step], failing: Option<(u64, u32)>) -> u64 {
    let stream = stream(fake);
    let begin = fake.stat("calls");
    if let Some((nth, code)) = failing {
        fake.fail("*", nth, code);
    }
    let mut blocks = Blocks::new();
    for step in program {
        if let Err(error) = apply(step, &stream, &mut blocks) {
            let code = error.code().map(|code| code.0);
            assert_eq!(code, failing.map(|(_, code)| code), "{step:?}: {error}");
        }
    }
    let calls = fake.stat("calls") - begin;
    if failing.is_none_or(|(nth, _)| nth <= calls) {
        // What is there holds what the model says, whatever failed on the way.
        for (device, model) in &blocks {
            let mut bytes = vec![1; model.len()];
            device.read(0, &mut bytes).unwrap();
            assert_eq!(bytes, *model);
        }
    }
    drop((blocks, stream));
    if fake.stat("failed_releases") == 0 {
        assert_clean(fake);
    }
    calls
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn memory_holds_what_the_model_holds(program in prop::collection::vec(step(), 1..60)) {
        run(&Fake::new(), &program, None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn so_it_does_when_any_one_call_fails(program in prop::collection::vec(step(), 1..16)) {
        let fake = Fake::new();
        let calls = run(&fake, &program, None);
        for code in [OUT_OF_MEMORY, UNKNOWN] {
            for nth in 1..=calls {
                fake.reset();
                run(&fake, &program, Some((nth, code)));
            }
        }
    }
}
