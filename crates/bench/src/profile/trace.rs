//! Recordings for trace viewers.

use super::Recording;
use crate::Result;
use serde_json::{Value, json};

/// Converts recordings to the trace event format of Perfetto (ui.perfetto.dev) and chrome://tracing, with one track for calls on the host
/// and one for the work on `device`. Times are in microseconds since the first call; recordings follow one another.
///
/// # Errors
/// From the clock.
pub fn trace(recordings: &[Recording], device: &str) -> Result<Value> {
    const HOST: u32 = 1;
    const DEVICE: u32 = 2;
    let name = |thread: u32, name: &str| json!({"ph": "M", "name": "thread_name", "pid": 1, "tid": thread, "args": {"name": name}});
    let mut events = vec![name(HOST, "host: calls"), name(DEVICE, device)];
    let mut offset = 0.0;
    for recording in recordings {
        let Some(start) = &recording.start else { continue };
        let first = recording.calls.iter().map(|call| call.host[0]).fold(f64::INFINITY, f64::min);
        let mut end = 0f64;
        for call in &recording.calls {
            let [from, to] = [call.marks[0].since(start)?, call.marks[1].since(start)?];
            let [called, returned] = call.host.map(|at| at - first);
            let arguments = json!({
                "pass": call.pass.to_string(),
                "inputs": call.shapes,
                "bytes": call.work.bytes,
                "flops": call.work.flops,
            });
            for (thread, category, from, to) in
                [(HOST, "host", called, returned), (DEVICE, "device", from, to)]
            {
                events.push(json!({
                    "ph": "X",
                    "name": call.operation,
                    "cat": category,
                    "pid": 1,
                    "tid": thread,
                    // Rounded to whole nanoseconds.
                    "ts": ((offset + from) * 1e9).round() * 1e-3,
                    "dur": ((to - from) * 1e9).round() * 1e-3,
                    "args": arguments,
                }));
            }
            end = end.max(to).max(returned);
        }
        offset += end + 1e-4;
    }
    Ok(json!({"displayTimeUnit": "ms", "traceEvents": events}))
}
