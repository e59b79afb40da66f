//! The bandwidth of the link between two GPUs.

use gradewise_ffi::{Context, DeviceMemory, Driver, Error, Event, PeerAccess, Result, Stream};

const BYTES: usize = 256 << 20;
const ROUNDS: usize = 5;

/// Bytes per second of copies from device 1 to device 0 by the copy engines, the best of several; `None` without peer access.
pub fn bandwidth(driver: &Driver) -> Result<Option<f64>> {
    if driver.device_count()? < 2 {
        return Ok(None);
    }
    let (here, there) = (Context::primary(driver, 0)?, Context::primary(driver, 1)?);
    if !PeerAccess::is_possible(&here, &there)? {
        return Ok(None);
    }
    let _access = PeerAccess::new(&here, &there)?;
    let (stream, other) = (Stream::new(&here)?, Stream::new(&there)?);
    let (target, source) = (DeviceMemory::new(&stream, BYTES)?, DeviceMemory::new(&other, BYTES)?);
    source.fill(1)?;
    other.synchronize()?;
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let (start, end) = (Event::new(&here, true)?, Event::new(&here, true)?);
        start.record(&stream)?;
        target.copy_from_peer(0, &source, 0, BYTES, &stream)?;
        end.record(&stream)?;
        end.synchronize()?;
        best = best.min(f64::from(end.milliseconds_since(&start)?) / 1e3);
    }
    Ok::<_, Error>(Some(BYTES as f64 / best))
}
