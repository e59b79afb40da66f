//! Access of a device to another's memory.

use crate::{Context, DeviceMemory, Error, Pool, Result, Stream, sys::*};

/// While it lives, kernels and copies of one device may access the memory of another.
#[derive(Debug)]
pub struct PeerAccess {
    context: Context,
    peer: Context,
    /// Whether this value enabled the access, so that dropping it disables it again.
    began: bool,
}

impl PeerAccess {
    /// Whether the device of `context` can access the memory of the device of `peer` directly.
    ///
    /// # Errors
    /// From the driver.
    pub fn is_possible(context: &Context, peer: &Context) -> Result<bool> {
        let mut can = 0;
        // SAFETY: the pointer is valid for the write.
        unsafe {
            context.driver().cuDeviceCanAccessPeer(&mut can, context.info().device, peer.info().device)?;
        }
        Ok(can != 0)
    }

    /// Lets the device of `context` access the memory of the device of `peer`, that of its pool included.
    ///
    /// # Errors
    /// From the driver, if it is not possible.
    pub fn new(context: &Context, peer: &Context) -> Result<Self> {
        context.bind()?;
        // SAFETY: both contexts are alive.
        let began = match unsafe { context.driver().cuCtxEnablePeerAccess(peer.raw(), 0) } {
            Ok(()) => true,
            Err(error) if error.code() == Some(CUresult::ERROR_PEER_ACCESS_ALREADY_ENABLED) => false,
            Err(error) => return Err(error),
        };
        // From here on, `drop` disables the access again if the pool refuses.
        let access = Self { context: context.clone(), peer: peer.clone(), began };
        Pool::new(peer)?.set_access(context.info().device, true)?;
        Ok(access)
    }
}

impl Drop for PeerAccess {
    fn drop(&mut self) {
        if !self.began {
            return;
        }
        let device = self.context.info().device;
        self.context.park(Pool::new(&self.peer).and_then(|pool| pool.set_access(device, false)));
        // SAFETY: both contexts are alive; enabled in `new`, disabled once.
        self.context.release(|driver| unsafe { driver.cuCtxDisablePeerAccess(self.peer.raw()) });
    }
}

impl DeviceMemory {
    /// Queues a copy of `bytes` bytes from a block that may be on another device. `stream` belongs to the device of either block. Works
    /// with and without [`PeerAccess`]; with it, the copy is direct.
    ///
    /// # Errors
    /// From the driver; [`Error::Range`] if the copy would end past either block.
    pub fn copy_from_peer(
        &self,
        offset: usize,
        source: &Self,
        source_offset: usize,
        bytes: usize,
        stream: &Stream,
    ) -> Result<(), Error> {
        self.require(offset, bytes, "copy")?;
        source.require(source_offset, bytes, "copy")?;
        if bytes == 0 {
            return Ok(());
        }
        stream.context().bind()?;
        // SAFETY: both ranges are inside their blocks; the contexts are alive.
        unsafe {
            stream.context().driver().cuMemcpyPeerAsync(
                self.pointer() + offset as u64,
                self.stream().context().raw(),
                source.pointer() + source_offset as u64,
                source.stream().context().raw(),
                bytes,
                stream.raw(),
            )
        }
    }
}
