//! Detects the kind of container this process runs in, and how to give it a GPU.

use super::report::Check;
use std::{env, fs, path::Path};

/// A kind of container, with the traces that identify it.
struct Kind {
    name: &'static str,
    /// The value of the environment variable `container`, a convention of systemd that others follow.
    variable: &'static str,
    /// A file that exists only in this kind.
    file: &'static str,
    /// A variable that is set only in this kind.
    own: &'static str,
    /// A substring of /proc/1/cgroup, with control groups of version 1.
    group: &'static str,
    /// How to give it a GPU.
    gpus: &'static str,
}

/// The most specific kinds first: a Kubernetes pod often looks like a Docker or containerd container, too.
const KINDS: [Kind; 6] = [
    Kind {
        name: "Kubernetes",
        variable: "kubernetes",
        file: "var/run/secrets/kubernetes.io",
        own: "KUBERNETES_SERVICE_HOST",
        group: "kubepods",
        gpus: "ask for nvidia.com/gpu in the pod's resource limits, with NVIDIA's device plugin on the node",
    },
    Kind {
        name: "Apptainer",
        variable: "apptainer",
        file: ".singularity.d",
        own: "APPTAINER_NAME",
        group: "apptainer",
        gpus: "start it with --nv",
    },
    Kind {
        name: "Podman",
        variable: "podman",
        file: "run/.containerenv",
        own: "",
        group: "libpod",
        gpus: "start it with --device nvidia.com/gpu=all (NVIDIA Container Toolkit, nvidia-ctk cdi generate)",
    },
    Kind {
        name: "Docker",
        variable: "docker",
        file: ".dockerenv",
        own: "",
        group: "docker",
        gpus: "start it with --gpus all (NVIDIA Container Toolkit)",
    },
    Kind {
        name: "LXC",
        variable: "lxc",
        file: "dev/lxd/sock",
        own: "",
        group: "lxc",
        gpus: "pass the GPU through: lxc config device add NAME gpu gpu, and nvidia.runtime=true",
    },
    Kind {
        name: "systemd-nspawn",
        variable: "systemd-nspawn",
        file: "run/host/container-manager",
        own: "",
        group: "machine.slice",
        gpus: "bind /dev/nvidia* and the driver's libraries",
    },
];

fn kind(root: &Path, variable: impl Fn(&str) -> Option<String>) -> Option<&'static Kind> {
    let said = variable("container").unwrap_or_default();
    if let Some(kind) = KINDS.iter().find(|kind| said.eq_ignore_ascii_case(kind.variable)) {
        return Some(kind);
    }
    let groups = fs::read_to_string(root.join("proc/1/cgroup")).unwrap_or_default();
    KINDS.iter().find(|kind| {
        root.join(kind.file).exists()
            || (!kind.own.is_empty() && variable(kind.own).is_some())
            || groups.contains(kind.group)
    })
}

fn found() -> Option<&'static Kind> {
    kind(Path::new("/"), |name| env::var(name).ok())
}

/// The kind of container this process runs in; `None` outside of a recognised one.
pub fn container() -> Option<String> {
    found().map(|kind| kind.name.to_owned())
}

/// The check of the container, if this is one, given the number of devices that CUDA shows, and whether any are expected.
pub fn check(devices: usize, expected: bool) -> Option<Check> {
    found().map(|kind| describe(kind, devices, expected))
}

fn describe(kind: &Kind, devices: usize, expected: bool) -> Check {
    const NAME: &str = "container";
    match devices {
        0 if !expected => Check::optional(NAME, format!("{}, without a GPU", kind.name), kind.gpus),
        0 => Check::warn(NAME, format!("{}, where no GPU is to be seen", kind.name), kind.gpus),
        _ => Check::info(NAME, kind.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::report::Verdict;

    #[test]
    fn containers_are_recognised_by_what_they_leave() {
        let name = |files: &[(&str, &str)], set: &[(&str, &str)]| {
            let root = tempfile::tempdir().unwrap();
            for (path, text) in files {
                let path = root.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            let variable =
                |name: &str| set.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned());
            kind(root.path(), variable).map(|kind| kind.name)
        };
        assert_eq!(name(&[("proc/1/cgroup", "0::/init.scope\n")], &[]), None);
        assert_eq!(name(&[(".dockerenv", "")], &[]), Some("Docker"));
        assert_eq!(name(&[("run/.containerenv", "")], &[]), Some("Podman"));
        assert_eq!(name(&[("proc/1/cgroup", "4:cpu:/docker/0123\n")], &[]), Some("Docker"));
        assert_eq!(name(&[(".dockerenv", "")], &[("KUBERNETES_SERVICE_HOST", "::1")]), Some("Kubernetes"));
        assert_eq!(name(&[], &[("APPTAINER_NAME", "x.sif")]), Some("Apptainer"));
        assert_eq!(name(&[(".dockerenv", "")], &[("container", "lxc")]), Some("LXC"));
        assert_eq!(name(&[], &[("container", "something")]), None);
    }

    #[test]
    fn a_container_without_a_gpu_is_told_how_to_get_one() {
        for kind in &KINDS {
            assert_eq!(describe(kind, 2, true).verdict, Verdict::Info);
            assert_eq!(describe(kind, 0, false).verdict, Verdict::Info);
            let check = describe(kind, 0, true);
            assert!(check.verdict == Verdict::Warn && check.advice.is_some_and(|text| text.len() > 10));
        }
    }
}
