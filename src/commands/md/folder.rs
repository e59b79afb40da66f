//! The files of a motion: its state, its frames and its energies.

use gradewise_nn::{checkpoint::replace_file, choice::Choice};
use gradewise_runner::{
    error::{Error, Result},
    run::{FolderLock, RunFolder},
};
use gradewise_zoo::{
    data::atoms::{Cell, Frame, Vector, write_extended_xyz},
    dynamics::{Dynamics, Record, State},
};
use serde::{Deserialize, Serialize};
use std::{
    fs::{File, OpenOptions},
    io::{Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

/// What going on needs, `state.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    /// The checkpoints of the potential.
    pub checkpoints: Vec<PathBuf>,
    /// `f32` or `f64`.
    pub dtype: String,
    /// Atomic numbers.
    pub numbers: Vec<u8>,
    /// The vectors of the cell, in Å, and along which the system repeats.
    pub cell: Option<([Vector; 3], [bool; 3])>,
    /// How the motion is computed.
    pub dynamics: Dynamics,
    /// Steps between frames and between records of energies.
    pub every: u64,
    /// How much farther than the cutoff neighbours are kept, in Å.
    pub skin: f64,
    /// Where neighbours were sought last.
    pub searched: Vec<Vector>,
    /// Pairs of neighbours for which there was room on a GPU; 0 of motions on the host.
    #[serde(default)]
    pub room: usize,
    /// The motion itself.
    pub state: State,
    /// Bytes of the files of frames and energies that belong to this state.
    pub written: [u64; 2],
}

impl Saved {
    /// The cell.
    pub fn cell(&self) -> Option<Cell> {
        self.cell.map(|(vectors, periodic)| Cell { vectors, periodic })
    }

    /// The dtype of the potential.
    ///
    /// # Errors
    /// An unknown name.
    pub fn dtype(&self) -> Result<gradewise_kernels::DType> {
        gradewise_kernels::DType::parse(&self.dtype).map_err(|error| Error::Usage(error.to_string()))
    }
}

/// The folder of a motion, locked.
pub struct MotionFolder {
    path: PathBuf,
    files: [File; 2],
    written: [u64; 2],
    _lock: Held,
}

/// What keeps other processes out.
enum Held {
    New { _folder: RunFolder },
    Opened { _lock: FolderLock },
}

const STATE: &str = "state.json";
const FILES: [&str; 2] = ["trajectory.xyz", "energies.jsonl"];

impl MotionFolder {
    /// A new folder: `out` if given, else `runs/md-<number>`.
    ///
    /// # Errors
    /// It holds a motion or a run already; it cannot be made.
    pub fn create(out: Option<&Path>) -> Result<Self> {
        if let Some(out) = out
            && out.join(STATE).exists()
        {
            let out = out.display();
            return Err(Error::Usage(format!(
                "{out} holds a motion already; go on with it by --resume {out}, or choose another folder"
            )));
        }
        let folder = RunFolder::create(out, "md")?;
        let path = folder.path().to_owned();
        let open = |name: &str| {
            let path = path.join(name);
            File::create(&path).map_err(|error| Error::Output { path, reason: error.to_string() })
        };
        let files = [open(FILES[0])?, open(FILES[1])?];
        Ok(Self { path, files, written: [0; 2], _lock: Held::New { _folder: folder } })
    }

    /// The folder of an earlier motion, whose files are cut to what its state has.
    ///
    /// # Errors
    /// It holds no motion, or a damaged one; another process writes there.
    pub fn resume(path: &Path) -> Result<(Self, Saved)> {
        let state = path.join(STATE);
        let usage = |reason: String| Error::Usage(format!("--resume {}: {reason}", path.display()));
        let text = std::fs::read(&state).map_err(|error| usage(format!("{}: {error}", state.display())))?;
        let saved: Saved =
            serde_json::from_slice(&text).map_err(|error| usage(format!("{}: {error}", state.display())))?;
        let lock = FolderLock::take(path)?;
        let open = |k: usize| -> Result<File> {
            let file = path.join(FILES[k]);
            let mut opened = OpenOptions::new()
                .write(true)
                .open(&file)
                .map_err(|error| usage(format!("{}: {error}", file.display())))?;
            let failed =
                |error: std::io::Error| Error::Output { path: file.clone(), reason: error.to_string() };
            let found = opened.metadata().map_err(failed)?.len();
            if found < saved.written[k] {
                let expected = saved.written[k];
                return Err(usage(format!(
                    "{} has {found} bytes, and the state {expected}; was it replaced?",
                    file.display()
                )));
            }
            opened.set_len(saved.written[k]).map_err(failed)?;
            opened.seek(SeekFrom::End(0)).map_err(failed)?;
            Ok(opened)
        };
        let files = [open(0)?, open(1)?];
        let _lock = Held::Opened { _lock: lock };
        Ok((Self { path: path.to_owned(), files, written: saved.written, _lock }, saved))
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a frame and a record of energies.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn add(&mut self, frame: &Frame, record: &Record) -> Result<()> {
        let mut text = String::new();
        let pairs =
            format!("step={} time_fs={} temperature={}", record.step, record.time, record.temperature);
        write_extended_xyz(frame, None, &pairs, &mut text);
        let line = serde_json::to_string(record).map_err(|error| Error::Failed(error.to_string()))?;
        for (k, text) in [text, line + "\n"].into_iter().enumerate() {
            self.files[k].write_all(text.as_bytes()).map_err(|error| Error::Output {
                path: self.path.join(FILES[k]),
                reason: error.to_string(),
            })?;
            self.written[k] += text.len() as u64;
        }
        Ok(())
    }

    /// Writes the state, after all frames and records before it.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn save(&mut self, mut saved: Saved) -> Result<()> {
        for (file, name) in self.files.iter().zip(FILES) {
            file.sync_data()
                .map_err(|error| Error::Output { path: self.path.join(name), reason: error.to_string() })?;
        }
        saved.written = self.written;
        let text = serde_json::to_vec(&saved).map_err(|error| Error::Failed(error.to_string()))?;
        Ok(replace_file(self.path.join(STATE), |file| file.write_all(&text))?)
    }

    /// The records so far.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn records(&self) -> Result<Vec<Record>> {
        let path = self.path.join(FILES[1]);
        let failed = |reason: String| Error::Failed(format!("{}: {reason}", path.display()));
        let text = std::fs::read_to_string(&path).map_err(|error| failed(error.to_string()))?;
        let record = |line: &str| serde_json::from_str(line).map_err(|error| failed(error.to_string()));
        text.lines().map(record).collect()
    }
}
