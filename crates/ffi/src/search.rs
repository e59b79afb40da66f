//! Where the optional libraries of the CUDA toolkit are looked for.

use std::{
    env,
    path::{Path, PathBuf},
};

/// A library of the CUDA toolkit, which may come from a toolkit, from a Python environment, or from this project's cache.
pub(crate) struct Search {
    /// A variable that names the file, or a folder that has it, and ends the search.
    pub variable: &'static str,
    /// The file's names, best first.
    pub names: &'static [&'static str],
    /// The library's folder below `site-packages/nvidia` in wheels before CUDA 13; later wheels share one folder.
    pub wheel: &'static str,
}

impl Search {
    /// Candidate paths, in order: only the variable's value if it is set; otherwise the loader's own path, toolkits, the Python environment
    /// in use, and the caches of `scripts/get-nvcc`.
    pub(crate) fn candidates(&self) -> Vec<String> {
        self.candidates_with(|name| env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn candidates_with(&self, variable: impl Fn(&str) -> Option<String>) -> Vec<String> {
        // The values 1 and 0 switch a library on and off (`GRADEWISE_CUBLASLT`); they are not paths.
        let given = variable(self.variable).filter(|value| !matches!(value.as_str(), "0" | "1"));
        if let Some(given) = given {
            let path = PathBuf::from(&given);
            return if path.is_dir() { self.inside(&path) } else { vec![given] };
        }
        let mut found: Vec<String> = self.names.iter().map(|&name| name.to_owned()).collect();
        let mut folders = Vec::new();
        for name in ["CUDA_HOME", "CUDA_PATH"] {
            folders.extend(variable(name).map(PathBuf::from));
        }
        for name in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
            folders.extend(variable(name).map(PathBuf::from).iter().flat_map(|root| self.python(root)));
        }
        let cache = variable("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| variable("HOME").map(|home| Path::new(&home).join(".cache")));
        folders.extend(cache.iter().flat_map(|cache| children(&cache.join("gradewise/cuda"))));
        folders.extend(["/usr/local/cuda", "/opt/cuda"].map(PathBuf::from));
        for folder in folders {
            // Only files that exist, so that the message about a missing library stays readable.
            found.extend(self.inside(&folder).into_iter().filter(|path| Path::new(path).is_file()));
        }
        found
    }

    /// The file under each of its names in the folder, and in the places where a toolkit and a wheel have it.
    fn inside(&self, folder: &Path) -> Vec<String> {
        let places = places(self.wheel, cfg!(windows));
        let paths = places.iter().flat_map(|place| self.names.iter().map(move |name| (place, name)));
        let paths: Vec<PathBuf> = paths.map(|(place, name)| folder.join(place).join(name)).collect();
        let present: Vec<&PathBuf> = paths.iter().filter(|path| path.is_file()).collect();
        // If no file exists, returns all paths, so that the error lists what was tried.
        let paths = if present.is_empty() { paths.iter().collect() } else { present };
        paths.into_iter().map(|path| path.to_string_lossy().into_owned()).collect()
    }

    fn python(&self, root: &Path) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> =
            children(&root.join("lib")).into_iter().map(|version| version.join("site-packages")).collect();
        found.push(root.join("Lib/site-packages"));
        found.retain(|path| path.is_dir());
        found
    }
}

/// Where toolkits and wheels have their libraries, which Windows keeps beside the programs.
fn places(wheel: &str, windows: bool) -> Vec<String> {
    let (toolkit, wheels): (&[&str], _) = if windows {
        (&["", "bin/x64", "bin"], ["cu13/bin/x86_64".to_owned(), format!("{wheel}/bin")])
    } else {
        (&["", "lib64", "lib", "bin"], ["cu13/lib".to_owned(), format!("{wheel}/lib")])
    };
    let wheels = wheels.into_iter().map(|place| format!("nvidia/{place}"));
    toolkit.iter().map(|&place| place.to_owned()).chain(wheels).collect()
}

/// The folders in a folder, last name first, so that newer versions come before older ones.
fn children(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.is_dir())
        .collect();
    found.sort();
    found.reverse();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const LIBRARY: Search = Search { variable: "GIVEN", names: &["libx.so.2", "libx.so"], wheel: "x" };

    /// Where NVIDIA's wheels for Windows have `nvrtc64_130_0.dll` and `nvrtc64_120_0.dll`.
    #[test]
    fn wheels_for_windows_keep_libraries_in_bin() {
        let places = places("cuda_nvrtc", true);
        for expected in ["nvidia/cu13/bin/x86_64", "nvidia/cuda_nvrtc/bin"] {
            assert!(places.iter().any(|place| place == expected), "{places:?}");
        }
    }

    fn with(pairs: &[(&str, &Path)]) -> Vec<String> {
        LIBRARY.candidates_with(|name| {
            let value = pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
            value.map(|value| value.to_string_lossy().into_owned())
        })
    }

    #[test]
    fn the_variable_ends_the_search() {
        let file = Path::new("/somewhere/libx.so");
        assert_eq!(with(&[("GIVEN", file), ("CUDA_HOME", Path::new("/other"))]), ["/somewhere/libx.so"]);
    }

    #[test]
    fn a_switch_is_no_path() {
        for value in ["0", "1"] {
            assert_eq!(with(&[("GIVEN", Path::new(value))])[..2], ["libx.so.2", "libx.so"]);
        }
    }

    #[test]
    fn a_folder_without_the_file_names_every_place_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let tried = with(&[("GIVEN", folder.path())]);
        assert!(tried.iter().any(|path| path.ends_with("lib64/libx.so.2")), "{tried:?}");
        assert!(tried.iter().any(|path| path.ends_with("nvidia/x/lib/libx.so")), "{tried:?}");
    }

    #[test]
    fn toolkits_environments_and_caches_are_searched_after_the_loader() {
        let folder = tempfile::tempdir().unwrap();
        let place = |path: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, b"").unwrap();
            path.to_string_lossy().into_owned()
        };
        let toolkit = place("toolkit/lib64/libx.so");
        let python = place("venv/lib/python3.13/site-packages/nvidia/cu13/lib/libx.so.2");
        let old = place("cache/gradewise/cuda/12.9.1/nvidia/x/lib/libx.so");
        let new = place("cache/gradewise/cuda/13.0.88/nvidia/cu13/lib/libx.so");
        let root = |path: &str| folder.path().join(path);
        let found = with(&[
            ("CUDA_HOME", &root("toolkit")),
            ("VIRTUAL_ENV", &root("venv")),
            ("XDG_CACHE_HOME", &root("cache")),
        ]);
        let expected = ["libx.so.2".to_owned(), "libx.so".to_owned(), toolkit, python, new, old];
        assert_eq!(found[..expected.len()], expected);
    }
}
