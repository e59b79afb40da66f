//! NVRTC: CUDA C++ compiled at run time.
//!
//! The library is found under its own names by the loader, in `CUDA_HOME` or `CUDA_PATH`, in the Python environment in
//! use (the wheels `nvidia-cuda-nvrtc`), and in the folders that `scripts/get-nvcc` fills; the variable
//! `GRADEWISE_NVRTC` names a file or a folder and ends the search.

mod calls;

pub use calls::{Calls, nvrtcProgram, nvrtcResult};

use crate::{Dynamic, Error, Provider, Result, search::Search};
use std::{
    ffi::{CString, c_char, c_int},
    fmt,
    sync::Arc,
};

/// The run-time compiler. Needs neither a GPU nor a driver. Cheap to clone.
#[derive(Clone)]
pub struct Nvrtc(Arc<Calls>);

impl std::ops::Deref for Nvrtc {
    type Target = Calls;

    fn deref(&self) -> &Calls {
        &self.0
    }
}

/// What to compile.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The name by which the compiler's messages call it.
    pub name: &'a str,
    /// CUDA C++.
    pub text: &'a str,
    /// Headers that the source may include: the name between the quotes, and the text.
    pub headers: &'a [(&'a str, &'a str)],
}

/// The result of compiling.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compiled {
    /// Machine code for one architecture (`-arch=sm_90a`), or PTX with a zero byte at the end (`-arch=compute_90`);
    /// [`Module::load`](crate::Module::load) takes both.
    pub image: Vec<u8>,
    /// The compiler's warnings and reports; mostly empty.
    pub log: String,
}

impl Nvrtc {
    /// Where the library is looked for.
    const SEARCH: Search = Search {
        variable: "GRADEWISE_NVRTC",
        names: if cfg!(windows) {
            &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll"]
        } else {
            &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]
        },
        wheel: "cuda_nvrtc",
    };

    /// Opens the library.
    ///
    /// # Errors
    /// [`Error::Library`] with everything tried.
    pub fn load() -> Result<Self> {
        const HINT: &str = "install it with `pip install nvidia-cuda-nvrtc`, and set GRADEWISE_NVRTC to the library or its folder";
        let candidates = Self::SEARCH.candidates();
        let paths: Vec<&str> = candidates.iter().map(String::as_str).collect();
        let library = Dynamic::open(Calls::LIBRARY, &paths, HINT)?;
        Ok(Self::new(library.with_companions(if cfg!(windows) {
            "nvrtc-builtins"
        } else {
            "libnvrtc-builtins.so"
        })))
    }

    /// A compiler whose functions come from `provider`.
    pub fn new(provider: impl Provider + 'static) -> Self {
        Self(Arc::new(Calls::new(Box::new(provider))))
    }

    /// The library's version: major, minor.
    ///
    /// # Errors
    /// From the library.
    pub fn version(&self) -> Result<(u32, u32)> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both pointers are valid for the write.
        unsafe { self.nvrtcVersion(&mut major, &mut minor)? };
        Ok((major.max(0) as u32, minor.max(0) as u32))
    }

    /// The architectures it compiles for, as in `75` and `90`, in increasing order.
    ///
    /// # Errors
    /// From the library.
    pub fn architectures(&self) -> Result<Vec<u32>> {
        let mut count = 0;
        // SAFETY: the pointer is valid for the write.
        unsafe { self.nvrtcGetNumSupportedArchs(&mut count)? };
        let mut found = vec![0 as c_int; count.max(0) as usize];
        // SAFETY: the array has room for `count` numbers.
        unsafe { self.nvrtcGetSupportedArchs(found.as_mut_ptr())? };
        Ok(found.into_iter().map(|number| number.max(0) as u32).collect())
    }

    /// Compiles `source` with options such as `-arch=sm_90a` and `-std=c++17`.
    ///
    /// # Errors
    /// [`Error::Compile`] with the compiler's words; [`Error::Argument`] if a text contains a zero byte;
    /// [`Error::Status`] from the library.
    pub fn compile(&self, source: &Source<'_>, options: &[&str]) -> Result<Compiled> {
        let program = Program::new(self, source)?;
        let options = texts(options.iter().copied(), "options")?;
        let pointers = pointers(&options);
        // SAFETY: the program is alive; the array has that many strings, which end with a zero byte.
        let result = unsafe { self.nvrtcCompileProgram(program.raw, count(&pointers)?, pointers.as_ptr()) };
        let log = program.log()?;
        match result {
            Ok(()) => Ok(Compiled { image: program.image()?, log }),
            Err(Error::Status { code, text, .. }) if code == nvrtcResult::ERROR_COMPILATION.0 => {
                let log = if log.is_empty() { text } else { log };
                Err(Error::Compile { name: source.name.to_owned(), log })
            }
            // For example an unknown option, which only the log names.
            Err(Error::Status { library, call, code, text }) if !log.is_empty() => {
                Err(Error::Status { library, call, code, text: format!("{text}: {log}") })
            }
            Err(error) => Err(error),
        }
    }
}

impl fmt::Debug for Nvrtc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nvrtc({})", self.provider())
    }
}

/// A program being compiled.
struct Program<'a> {
    nvrtc: &'a Nvrtc,
    raw: nvrtcProgram,
}

impl<'a> Program<'a> {
    fn new(nvrtc: &'a Nvrtc, source: &Source<'_>) -> Result<Self> {
        let [text, name] =
            [source.text, source.name].map(|text| CString::new(text).map_err(|_| zero_byte("source")));
        let (text, name) = (text?, name?);
        let names = texts(source.headers.iter().map(|(name, _)| *name), "names of headers")?;
        let bodies = texts(source.headers.iter().map(|(_, text)| *text), "headers")?;
        let (names, bodies) = (pointers(&names), pointers(&bodies));
        let mut raw = nvrtcProgram::NULL;
        // SAFETY: all strings end with a zero byte and both arrays have that many; the library copies them. `drop`
        // releases the program.
        unsafe {
            nvrtc.nvrtcCreateProgram(
                &mut raw,
                text.as_ptr(),
                name.as_ptr(),
                count(&names)?,
                bodies.as_ptr(),
                names.as_ptr(),
            )?;
        }
        Ok(Self { nvrtc, raw })
    }

    fn log(&self) -> Result<String> {
        let mut size = 0;
        // SAFETY: the program is alive; the pointer is valid for the write.
        unsafe { self.nvrtc.nvrtcGetProgramLogSize(self.raw, &mut size)? };
        let mut log = vec![0u8; size];
        if size > 0 {
            // SAFETY: the buffer has the size that the library asked for, the zero byte at the end included.
            unsafe { self.nvrtc.nvrtcGetProgramLog(self.raw, log.as_mut_ptr().cast::<c_char>())? };
        }
        Ok(String::from_utf8_lossy(&log).trim_end_matches('\0').trim().to_owned())
    }

    /// Machine code if the target is a real architecture, otherwise PTX.
    fn image(&self) -> Result<Vec<u8>> {
        let mut size = 0;
        // SAFETY: the program is alive and compiled; the pointer is valid for the write.
        unsafe { self.nvrtc.nvrtcGetCUBINSize(self.raw, &mut size)? };
        if size > 0 {
            let mut image = vec![0u8; size];
            // SAFETY: the buffer has the size that the library asked for.
            unsafe { self.nvrtc.nvrtcGetCUBIN(self.raw, image.as_mut_ptr().cast::<c_char>())? };
            return Ok(image);
        }
        // SAFETY: as above.
        unsafe { self.nvrtc.nvrtcGetPTXSize(self.raw, &mut size)? };
        let mut image = vec![0u8; size];
        // SAFETY: the buffer has the size that the library asked for, the zero byte at the end included.
        unsafe { self.nvrtc.nvrtcGetPTX(self.raw, image.as_mut_ptr().cast::<c_char>())? };
        Ok(image)
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // Nothing uses the program any more, so a failure has no consequence.
        // SAFETY: created in `new`, released once.
        let _ = unsafe { self.nvrtc.nvrtcDestroyProgram(&mut self.raw) };
    }
}

fn zero_byte(what: &str) -> Error {
    Error::Argument { call: "Nvrtc::compile", problem: format!("{what}: a zero byte inside the text") }
}

fn texts<'a>(texts: impl Iterator<Item = &'a str>, what: &str) -> Result<Vec<CString>> {
    texts.map(|text| CString::new(text).map_err(|_| zero_byte(what))).collect()
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).collect()
}

fn count(pointers: &[*const c_char]) -> Result<c_int> {
    c_int::try_from(pointers.len()).map_err(|_| Error::Argument {
        call: "Nvrtc::compile",
        problem: format!("{} texts are more than the library counts", pointers.len()),
    })
}
