//! The C interface of potentials: `include/gradewise.h` is its contract.

mod arguments;
mod error;

use arguments::{read_array, read_text, write_array};
use error::{Code, Refusal, guarded};
use gradewise_cli::calculator::{Calculator, Cell};
use gradewise_kernels::{DType, Device};
use std::{
    ffi::{c_char, c_double, c_int},
    path::PathBuf,
    sync::Mutex,
};

/// A potential that several threads may use, one after another.
pub struct Potential {
    calculator: Mutex<Calculator>,
    cutoff: f64,
}

/// `gradewise_potential_open` of the header.
///
/// # Safety
/// `checkpoints` points to `count` strings that end in a null byte, `device` to one, `potential` to a pointer that can be written; or they are
/// null, which is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradewise_potential_open(
    checkpoints: *const *const c_char,
    count: usize,
    device: *const c_char,
    dtype: c_int,
    potential: *mut *mut Potential,
) -> c_int {
    guarded(|| {
        // SAFETY: the contract of this function.
        let (names, device) =
            unsafe { (read_array("checkpoints", checkpoints, count)?, read_text("device", device)?) };
        let paths: Vec<PathBuf> = names
            .iter()
            // SAFETY: as above.
            .map(|&name| Ok(PathBuf::from(unsafe { read_text("checkpoints", name) }?)))
            .collect::<Result<_, Refusal>>()?;
        let dtype = match dtype {
            0 => DType::F32,
            1 => DType::F64,
            other => {
                let message = format!("dtype is {other}, expected GRADEWISE_F32 (0) or GRADEWISE_F64 (1)");
                return Err(Refusal::input(message));
            }
        };
        if potential.is_null() {
            return Err(Refusal::input("potential is a null pointer, expected where to write the potential"));
        }
        let device: Device = device.parse::<Device>()?;
        let calculator = Calculator::open(&paths, &device, dtype)?;
        let opened = Potential { cutoff: calculator.cutoff(), calculator: Mutex::new(calculator) };
        // SAFETY: it is not null, and by the contract it can be written.
        unsafe { potential.write(Box::into_raw(Box::new(opened))) };
        Ok(())
    })
}

/// `gradewise_potential_cutoff` of the header.
///
/// # Safety
/// `potential` comes from `gradewise_potential_open` and was not closed, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradewise_potential_cutoff(potential: *const Potential) -> c_double {
    // SAFETY: the contract of this function.
    unsafe { potential.as_ref() }.map_or(0.0, |potential| potential.cutoff)
}

/// `gradewise_potential_evaluate` of the header.
///
/// # Safety
/// `potential` comes from `gradewise_potential_open` and was not closed; `numbers` points to `atoms` numbers, `positions` and `forces` to three
/// times as many, `cell` and `virial` to 9, `periodic` to 3, `energy` to one. What may not be null and is, is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradewise_potential_evaluate(
    potential: *mut Potential,
    atoms: usize,
    numbers: *const i32,
    positions: *const c_double,
    cell: *const c_double,
    periodic: *const i32,
    energy: *mut c_double,
    forces: *mut c_double,
    virial: *mut c_double,
) -> c_int {
    guarded(|| {
        // SAFETY: the contract of this function.
        let potential = unsafe { potential.as_ref() }
            .ok_or_else(|| Refusal::input("potential is a null pointer, expected one that was opened"))?;
        if atoms > u32::MAX as usize {
            return Err(Refusal::input(format!("{atoms} atoms, expected at most 2^32 - 1")));
        }
        // SAFETY: the contract of this function.
        let (numbers, positions) = unsafe {
            (read_array("numbers", numbers, atoms)?, read_array("positions", positions, 3 * atoms)?)
        };
        let number = |&number: &i32| {
            u8::try_from(number).map_err(|_| {
                Refusal::input(format!("numbers has {number}, expected atomic numbers from 1 to 118"))
            })
        };
        let numbers: Vec<u8> = numbers.iter().map(number).collect::<Result<_, _>>()?;
        let positions: Vec<[f64; 3]> = positions.chunks_exact(3).map(|x| [x[0], x[1], x[2]]).collect();
        let cell = if cell.is_null() {
            if !periodic.is_null() {
                // SAFETY: the contract of this function.
                let periodic = unsafe { read_array("periodic", periodic, 3)? };
                if periodic.iter().any(|&repeats| repeats != 0) {
                    return Err(Refusal::input(
                        "the system repeats and cell is a null pointer; give its vectors",
                    ));
                }
            }
            None
        } else {
            // SAFETY: the contract of this function.
            let v = unsafe { read_array("cell", cell, 9)? };
            let vectors = [[v[0], v[1], v[2]], [v[3], v[4], v[5]], [v[6], v[7], v[8]]];
            let repeats = if periodic.is_null() {
                [true; 3]
            } else {
                // SAFETY: the contract of this function.
                let found = unsafe { read_array("periodic", periodic, 3)? };
                [found[0] != 0, found[1] != 0, found[2] != 0]
            };
            Some(Cell { vectors, periodic: repeats })
        };
        if energy.is_null() {
            return Err(Refusal::input("energy is a null pointer, expected where to write the energy"));
        }
        let mut calculator = potential.calculator.lock().map_err(|_| Refusal {
            code: Code::Fault,
            message: "an earlier call with this potential ended in a fault; open it again".to_owned(),
        })?;
        let found = calculator.evaluate_with_virial(&numbers, &positions, cell)?;
        // SAFETY: by the contract they have these lengths, unless they are null, where nothing is written.
        unsafe {
            energy.write(found.labels.energy);
            write_array(forces, found.labels.forces.as_flattened());
            write_array(virial, found.virial.as_flattened());
        }
        Ok(())
    })
}

/// `gradewise_potential_close` of the header.
///
/// # Safety
/// `potential` comes from `gradewise_potential_open`, was not closed, and no other call with it is under way; or it is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradewise_potential_close(potential: *mut Potential) {
    if !potential.is_null() {
        // SAFETY: it comes from `Box::into_raw` in `gradewise_potential_open`, and is owned by the caller.
        drop(unsafe { Box::from_raw(potential) });
    }
}

/// `gradewise_last_error` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn gradewise_last_error() -> *const c_char {
    error::last()
}
