//! Everything is released once, in order, whatever fails on the way.

mod common;

use common::*;
use gradewise_fake_driver::Fake;
use gradewise_ffi::{
    Context, DeviceMemory, Event, GraphExec, HostMemory, Module, PeerAccess, Result, Stream,
    sys::capture_mode,
};

/// One object of each kind, with what it holds, and the function that releases it.
fn one_of_each(stream: &Stream) -> Result<Vec<(Box<dyn std::any::Any + Send>, &'static str)>> {
    let context = stream.context();
    let graph = || stream.capture(capture_mode::THREAD_LOCAL, |_| Ok::<_, gradewise_ffi::Error>(()));
    let exec: GraphExec = graph()?.instantiate()?;
    Ok(vec![
        (Box::new(Stream::new(context)?), "cuStreamDestroy_v2"),
        (Box::new(Stream::with_priority(context, Stream::best_priority(context)?)?), "cuStreamDestroy_v2"),
        (Box::new(Event::new(context, true)?), "cuEventDestroy_v2"),
        (Box::new(DeviceMemory::new(stream, 1000)?), "cuMemFreeAsync"),
        (Box::new(DeviceMemory::immediate(stream, 1000)?), "cuMemFree_v2"),
        (Box::new(HostMemory::new(context, 1000)?), "cuMemFreeHost"),
        (Box::new(Module::load(context, "m", PTX)?), "cuModuleUnload"),
        (Box::new(graph()?), "cuGraphDestroy"),
        (Box::new(exec), "cuGraphExecDestroy"),
        (
            Box::new(PeerAccess::new(context, &Context::primary(context.driver(), 1)?)?),
            "cuCtxDisablePeerAccess",
        ),
    ])
}

#[test]
fn each_object_is_released_once() {
    let fake = Fake::new();
    let stream = stream(&fake);
    for (object, function) in one_of_each(&stream).unwrap() {
        let before = fake.stat(function);
        drop(object);
        assert_eq!(fake.stat(function) - before, 1, "{function}");
        assert_eq!(stream.context().take_parked(), None, "{function}");
    }
    drop(stream);
    assert_clean(&fake);
}

#[test]
fn each_object_is_released_once_also_where_the_context_cannot_be_made_current() {
    let fake = Fake::new();
    let stream = stream(&fake);
    for (object, function) in one_of_each(&stream).unwrap() {
        let before = fake.stat(function);
        fake.fail("cuCtxSetCurrent", 1, UNKNOWN);
        drop(object);
        assert_eq!(fake.stat(function) - before, 1, "{function}");
        let parked = stream.context().take_parked().unwrap();
        assert_eq!(parked.code().map(|code| code.0), Some(UNKNOWN), "{function}");
        assert_eq!(stream.context().take_parked(), None);
    }
    drop(stream);
    assert_clean(&fake);
}

#[test]
fn a_release_that_fails_is_not_repeated_and_its_error_is_kept() {
    let fake = Fake::new();
    let stream = stream(&fake);
    for (object, function) in one_of_each(&stream).unwrap() {
        let before = fake.stat(function);
        fake.fail(function, 1, UNKNOWN);
        drop(object);
        assert_eq!(fake.stat(function) - before, 1, "{function}");
        let parked = stream.context().take_parked().unwrap().to_string();
        assert!(parked.contains(function), "{parked}");
    }
}

#[test]
fn the_first_of_several_errors_is_kept() {
    let fake = Fake::new();
    let stream = stream(&fake);
    for code in [UNKNOWN, INVALID_VALUE] {
        fake.fail("cuEventDestroy_v2", 1, code);
        drop(Event::new(stream.context(), false).unwrap());
    }
    assert_eq!(stream.context().take_parked().unwrap().code().unwrap().0, UNKNOWN);
    assert_eq!(stream.context().take_parked(), None);
}

#[test]
fn objects_may_be_dropped_on_a_thread_that_never_saw_the_context() {
    let fake = Fake::new();
    let stream = stream(&fake);
    let objects = one_of_each(&stream).unwrap();
    std::thread::spawn(move || drop(objects)).join().unwrap();
    assert_eq!(stream.context().take_parked(), None);
    drop(stream);
    assert_clean(&fake);
}

#[test]
fn what_holds_others_keeps_them_alive() {
    let fake = Fake::new();
    let stream = stream(&fake);
    let kernel = kernel(stream.context(), "scale_f32"); // its module is held by nothing else
    let block = DeviceMemory::new(&stream, 8).unwrap();
    drop(stream);
    assert_eq!((fake.stat("modules"), fake.stat("streams"), fake.stat("contexts")), (1, 1, 1));
    assert_eq!(kernel.parameter_sizes(), Ok(vec![8, 4, 4]));
    assert_eq!(block.fill(1), Ok(()));
    drop((kernel, block));
    assert_clean(&fake);
}

#[test]
fn a_failure_of_any_call_leaves_nothing_behind() {
    let fake = Fake::new();
    let mut failed = 0;
    for nth in 1.. {
        let stream = stream(&fake);
        fake.fail("*", nth, UNKNOWN);
        let before = fake.stat("calls");
        failed += usize::from(one_of_each(&stream).map(drop).is_err());
        let calls = fake.stat("calls") - before;
        drop(stream);
        // What could not be released is still there; all else is gone.
        if fake.stat("failed_releases") == 0 {
            assert_eq!(fake.remains(), [], "after failure of call {nth}");
        }
        fake.reset();
        if calls < nth {
            break;
        }
    }
    assert!(failed > 30, "{failed} calls failed");
}

#[test]
fn borrowed_objects_are_left_to_their_owners() {
    let fake = Fake::new();
    let owner = stream(&fake);
    let memory = DeviceMemory::new(&owner, 64).unwrap();
    {
        // SAFETY: the owners outlive the borrows.
        let (context, stream) = unsafe {
            let context = Context::borrow(owner.context().driver(), owner.context().raw()).unwrap();
            let stream = Stream::borrow(&context, owner.raw());
            (context, stream)
        };
        assert_eq!(context.info().ordinal, 0);
        assert_eq!(context.api_version(), Ok(3020));
        // SAFETY: as above.
        let block = unsafe { DeviceMemory::borrow(&stream, memory.pointer(), memory.bytes()) };
        block.fill(7).unwrap();
    }
    let mut bytes = [0; 64];
    memory.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 64]);
    drop((memory, owner));
    assert_clean(&fake);
}
