//! What the fault tests share: a stand-in of one's own for each, and the PTX that it understands.

#![allow(dead_code, reason = "each test binary uses its own part")]

use gradewise_fake_driver::Fake;
use gradewise_ffi::{Context, Driver, Dynamic, Function, Module, Provider, Stream};
use std::ffi::{CStr, c_void};

/// Codes, as numbers, for telling the stand-in to fail.
pub const INVALID_VALUE: u32 = 1;
pub const OUT_OF_MEMORY: u32 = 2;
pub const INVALID_CONTEXT: u32 = 201;
pub const ILLEGAL_ADDRESS: u32 = 700;
pub const UNKNOWN: u32 = 4711;

pub const PTX: &[u8] = b".version 8.0\n.target sm_75\n.address_size 64\n\
    .visible .entry scale_f32(.param .u64 x, .param .f32 factor, .param .u32 n) { ret; }\n\
    .visible .entry trap() { ret; }\n\
    .visible .entry unregistered(.param .align 8 .b8 pod[24]) { ret; }\n";

pub fn driver(fake: &Fake) -> Driver {
    Driver::open(fake.path()).unwrap()
}

pub fn stream(fake: &Fake) -> Stream {
    Stream::new(&Context::primary(&driver(fake), 0).unwrap()).unwrap()
}

pub fn kernel(context: &Context, name: &str) -> Function {
    Module::load(context, "test", PTX).unwrap().function(name).unwrap()
}

/// A library without some of its functions.
pub struct Without {
    pub library: Dynamic,
    pub missing: &'static [&'static str],
}

impl Provider for Without {
    fn symbol(&self, name: &CStr) -> Option<*const c_void> {
        let missing = self.missing.iter().any(|missing| missing.as_bytes() == name.to_bytes());
        if missing { None } else { self.library.symbol(name) }
    }

    fn describe(&self) -> String {
        "a library with holes".to_owned()
    }
}

/// Nothing was left behind, released twice, or used after its release.
#[track_caller]
pub fn assert_clean(fake: &Fake) {
    assert_eq!(fake.remains(), []);
}
