//! The times of a step in several modes, and advice from them.

use gradewise_bench::profile::NamedTime;

/// A step that is replayed as a CUDA graph.
#[derive(Clone, Copy)]
pub(super) struct Replayed {
    pub(super) seconds: f64,
    /// Kernels, copies and fills of the graph.
    pub(super) launches: usize,
}

/// The times of a step, in seconds.
pub(super) struct Speed {
    /// Eager, including the host's work.
    pub(super) eager: f64,
    /// Device time of an eager step, without waiting for the host.
    pub(super) device: Option<f64>,
    /// Replayed as a CUDA graph of the operators' own kernels.
    pub(super) captured: Option<Replayed>,
    /// The same with fused operators.
    pub(super) fused: Option<Replayed>,
    /// With a batch of twice the size.
    pub(super) twice: Option<f64>,
}

impl Speed {
    /// Interprets the times: whether larger batches or capture would help.
    pub(super) fn advice(&self, batch_size: usize, parts: &[NamedTime]) -> Vec<String> {
        let ms = |seconds: f64| 1e3 * seconds;
        let mut lines = Vec::new();
        if let Some(device) = self.device {
            // Events add to the measured time, so the time of a graph is an upper bound.
            let device =
                self.captured.map_or(device, |captured| device.min(captured.seconds)).min(self.eager);
            let waits = (self.eager - device).max(0.0);
            let mut line = format!(
                "launches: a step takes {:.3} ms operator by operator, of which the device computes {:.3} ms",
                ms(self.eager),
                ms(device)
            );
            if let Some(Replayed { launches, .. }) = self.captured {
                // If the device is slower than the host, the time of a step is not spent on launches.
                line += &if waits > 0.1 * self.eager {
                    format!(
                        "; {launches} launches, {:.1} µs of the host for each",
                        1e6 * self.eager / launches as f64
                    )
                } else {
                    format!("; {launches} launches, which the host queues while the device computes")
                };
            }
            lines.push(line);
            lines.push(match self.captured {
                Some(Replayed { seconds: captured, .. }) if captured < 0.9 * self.eager => format!(
                    "capture helps: {:.3} ms as a graph, {:.0}% less (train.capture=true, the default)",
                    ms(captured),
                    100.0 * (1.0 - captured / self.eager)
                ),
                Some(Replayed { seconds: captured, .. }) => format!(
                    "capture changes little: {:.3} ms as a graph; the device is busy {:.0}% of the time anyway",
                    ms(captured),
                    100.0 * (1.0 - waits / self.eager)
                ),
                None => "the step was not captured; without a graph the device waits for the host".to_owned(),
            });
            if let (Some(captured), Some(fused)) = (self.captured, self.fused) {
                lines.push(format!(
                    "fused operators: {:.3} ms in {} launches in place of {} (train.fuse=true, the default)",
                    ms(fused.seconds),
                    fused.launches,
                    captured.launches
                ));
            }
        }
        let one = self.fused.or(self.captured).map_or(self.eager, |replayed| replayed.seconds);
        if let Some(twice) = self.twice {
            let gain = 2.0 * one / twice;
            lines.push(if gain > 1.15 {
                format!(
                    "larger batches help: {} samples take {:.3} ms, {:.2} times the samples per second of {batch_size}",
                    2 * batch_size,
                    ms(twice),
                    gain
                )
            } else {
                format!(
                    "larger batches do not help: {} samples take {:.3} ms, {gain:.2} times the samples per second of {batch_size}",
                    2 * batch_size,
                    ms(twice)
                )
            });
        }
        let mean = |name: &str| {
            let part = parts.iter().find(|part| part.name == name)?;
            Some(part.seconds / part.calls.max(1) as f64)
        };
        if let (Some(waited), Some(step)) = (mean("wait for a batch"), mean("step"))
            && waited > 0.1 * step
        {
            lines.push(format!(
                "the loader holds steps back: {:.3} ms of {:.3} are waited for a batch",
                ms(waited),
                ms(step)
            ));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speed(eager: f64, device: f64, captured: f64, twice: f64) -> Speed {
        Speed {
            eager,
            device: Some(device),
            captured: Some(Replayed { seconds: captured, launches: 100 }),
            fused: Some(Replayed { seconds: captured, launches: 20 }),
            twice: Some(twice),
        }
    }

    #[test]
    fn what_helps_is_said_and_what_does_not_too() {
        let text = speed(0.010, 0.002, 0.0025, 0.003).advice(50, &[]).join("\n");
        for part in [
            "100 launches, 100.0 µs",
            "capture helps: 2.500 ms as a graph, 75% less",
            "fused operators: 2.500 ms in 20 launches in place of 100",
            "100 samples take 3.000 ms, 1.67",
        ] {
            assert!(text.contains(part), "`{part}` is not in: {text}");
        }
        let text = speed(0.010, 0.0098, 0.0099, 0.0198).advice(50, &[]).join("\n");
        assert!(text.contains("capture changes little") && text.contains("do not help"), "{text}");
        assert!(
            text.contains("100 launches, which the host queues while") && !text.contains("for each"),
            "{text}"
        );
        let host = Speed { device: None, captured: None, fused: None, twice: None, eager: 1.0 };
        let part = |name: &str, seconds| NamedTime {
            name: name.to_owned(),
            calls: 2,
            seconds,
            peak_bytes: 0,
            kept_bytes: 0,
        };
        let parts = [part("step", 2.0), part("wait for a batch", 0.6)];
        assert_eq!(
            host.advice(5, &parts),
            ["the loader holds steps back: 300.000 ms of 1000.000 are waited for a batch"]
        );
    }
}
