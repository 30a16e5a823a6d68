//! A source whose body is compressed on its way.

use std::fmt;
use std::io;
use std::mem;

use bytes::Bytes;
use windlass::Instant;
use windlass::session::{Front, Output, OutputLimits};

use super::encoder::Encoder;
use crate::body_source::{BodySource, BodyWriter, Produced, StreamFraming};
use crate::content_coding::Coding;

/// How much is compressed in one turn, though little comes out: others have their turn then.
const TURN_BYTES_MAX: u64 = 128 * 1024;

/// What the inner source appends before it must let go.
const PLAIN_LIMITS: OutputLimits = OutputLimits {
    high_bytes: 64 * 1024,
    low_bytes: 16 * 1024,
};

/// Compresses what another source makes.
pub(super) struct CompressedSource {
    inner: Box<dyn BodySource>,
    /// Taken when the body ends.
    encoder: Option<Encoder>,
    /// What the inner source has just appended.
    plain: Output,
    scratch: Vec<u8>,
    /// Counts a promised length.
    framing: StreamFraming,
    plain_bytes: u64,
    /// How many bytes had been made when the encoder was last flushed.
    flushed_bytes: u64,
    /// The turn is over, though the session would go on.
    rests: bool,
}

impl CompressedSource {
    /// Compresses the `len` bytes that `inner` makes, or as many as it makes.
    pub(super) fn new(
        inner: Box<dyn BodySource>,
        len: Option<u64>,
        coding: Coding,
    ) -> io::Result<Self> {
        Ok(Self {
            inner,
            encoder: Some(Encoder::for_stream(coding)?),
            plain: Output::new(PLAIN_LIMITS),
            scratch: Vec::new(),
            framing: len.map_or(StreamFraming::Close, StreamFraming::Length),
            plain_bytes: 0,
            flushed_bytes: 0,
            rests: false,
        })
    }

    /// Has the inner source append once.
    fn pull(&mut self, body: &mut BodyWriter<'_, '_>) -> Produced {
        let mut writer = BodyWriter {
            output: &mut self.plain,
            scratch: &mut self.scratch,
            framing: &mut self.framing,
            written_bytes: &mut self.plain_bytes,
            trailers: body.trailers,
            wakeups: body.wakeups,
            now: body.now,
            hints: body.hints,
        };
        let produced = self.inner.produce(&mut writer);
        if produced == Produced::End && !writer.finish() {
            return Produced::Failed;
        }
        writer.flush();
        if self.framing == StreamFraming::Broken {
            return Produced::Failed;
        }
        produced
    }

    /// Compresses what was appended; what comes out goes into `body`.
    fn compress(&mut self, produced: Produced, body: &mut BodyWriter<'_, '_>) -> io::Result<()> {
        let Some(encoder) = &mut self.encoder else {
            return Ok(());
        };
        while let Some(Front::Bytes(bytes)) = self.plain.front() {
            encoder.write(bytes)?;
            let count = bytes.len() as u64;
            self.plain.advance(count);
        }
        if produced == Produced::Pending && self.flushed_bytes != self.plain_bytes {
            encoder.flush()?;
            self.flushed_bytes = self.plain_bytes;
        }
        let mut out = encoder.take();
        if produced == Produced::End
            && let Some(encoder) = self.encoder.take()
        {
            out.append(&mut encoder.finish()?);
        }
        body.push_shared(Bytes::from(out));
        Ok(())
    }
}

impl BodySource for CompressedSource {
    fn produce(&mut self, body: &mut BodyWriter<'_, '_>) -> Produced {
        // A session goes on at once with a source that has appended something.
        if mem::take(&mut self.rests) {
            return Produced::More;
        }
        let (plain_before, written_before) = (self.plain_bytes, *body.written_bytes);
        loop {
            let before = self.plain_bytes;
            let produced = self.pull(body);
            if produced == Produced::Failed || self.compress(produced, body).is_err() {
                return Produced::Failed;
            }
            let goes_on = produced == Produced::More && self.plain_bytes != before;
            if !goes_on || body.is_full() {
                return produced;
            }
            if self.plain_bytes - plain_before >= TURN_BYTES_MAX {
                self.rests = *body.written_bytes != written_before;
                return Produced::More;
            }
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        self.inner.wake_at()
    }
}

impl fmt::Debug for CompressedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompressedSource")
            .field("encoder", &self.encoder)
            .field("plain_bytes", &self.plain_bytes)
            .finish_non_exhaustive()
    }
}
