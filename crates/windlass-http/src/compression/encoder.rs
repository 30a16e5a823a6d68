//! The encoders of all codings behind one face.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::os::unix::fs::FileExt;

use crate::content_coding::Coding;
use crate::response::{Body, Piece};

/// Levels and window of streams: little work for the connection's thread, little memory for each
/// connection.
const STREAM_LEVEL: u32 = 3;
const STREAM_WINDOW_LOG: u32 = 18;

/// The window of Brotli for whole bodies.
const BROTLI_WINDOW_LOG: u32 = 22;

/// Encoders gather their output in pieces of this size; files are read in them.
const PIECE_BYTES: usize = 32 * 1024;

/// Compresses what is written to it.
pub(super) enum Encoder {
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
    Identity(Vec<u8>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

impl Encoder {
    /// One for a whole body.
    pub(super) fn new(coding: Coding, level: u32) -> io::Result<Self> {
        Self::with_window(coding, level, BROTLI_WINDOW_LOG, None)
    }

    /// One for a stream.
    pub(super) fn for_stream(coding: Coding) -> io::Result<Self> {
        Self::with_window(
            coding,
            STREAM_LEVEL,
            STREAM_WINDOW_LOG,
            Some(STREAM_WINDOW_LOG),
        )
    }

    fn with_window(
        coding: Coding,
        level: u32,
        brotli_window_log: u32,
        zstd_window_log: Option<u32>,
    ) -> io::Result<Self> {
        let out = Vec::new();
        Ok(match coding {
            Coding::Brotli => Self::Brotli(Box::new(brotli::CompressorWriter::new(
                out,
                PIECE_BYTES,
                level,
                brotli_window_log,
            ))),
            Coding::Gzip => Self::Gzip(flate2::write::GzEncoder::new(
                out,
                flate2::Compression::new(level),
            )),
            Coding::Identity => Self::Identity(out),
            Coding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(out, level.cast_signed())?;
                if let Some(window_log) = zstd_window_log {
                    encoder.window_log(window_log)?;
                }
                Self::Zstd(encoder)
            }
        })
    }

    pub(super) fn write(&mut self, data: &[u8]) -> io::Result<()> {
        self.writer().write_all(data)
    }

    /// Makes everything that was written so far come out.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.writer().flush()
    }

    /// What has come out since the last call.
    pub(super) fn take(&mut self) -> Vec<u8> {
        mem::take(match self {
            Self::Brotli(encoder) => encoder.get_mut(),
            Self::Gzip(encoder) => encoder.get_mut(),
            Self::Identity(out) => out,
            Self::Zstd(encoder) => encoder.get_mut(),
        })
    }

    /// Ends the body; answers what has come out since the last call of [`take`](Self::take).
    pub(super) fn finish(self) -> io::Result<Vec<u8>> {
        Ok(match self {
            Self::Brotli(encoder) => encoder.into_inner(),
            Self::Gzip(encoder) => encoder.finish()?,
            Self::Identity(out) => out,
            Self::Zstd(encoder) => encoder.finish()?,
        })
    }

    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Self::Brotli(encoder) => &mut **encoder,
            Self::Gzip(encoder) => encoder,
            Self::Identity(out) => out,
            Self::Zstd(encoder) => encoder,
        }
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Brotli(_) => "Brotli",
            Self::Gzip(_) => "Gzip",
            Self::Identity(_) => "Identity",
            Self::Zstd(_) => "Zstd",
        })
    }
}

/// Compresses a body that is whole. Blocks: for a job.
pub(super) fn compress(coding: Coding, level: u32, body: &Body) -> io::Result<Vec<u8>> {
    let mut encoder = Encoder::new(coding, level)?;
    match body {
        Body::Bytes(bytes) => encoder.write(bytes)?,
        Body::File { file, offset, len } => read_file(file, *offset, *len, &mut encoder)?,
        Body::Pieces(pieces) => {
            for piece in pieces {
                match piece {
                    Piece::Bytes(bytes) => encoder.write(bytes)?,
                    Piece::File { file, offset, len } => {
                        read_file(file, *offset, *len, &mut encoder)?;
                    }
                }
            }
        }
        Body::Stream { .. } => return Err(io::ErrorKind::InvalidInput.into()),
    }
    encoder.finish()
}

fn read_file(file: &File, mut offset: u64, mut len: u64, encoder: &mut Encoder) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    while len > 0 {
        // At most PIECE_BYTES.
        let piece = &mut piece[..len.min(PIECE_BYTES as u64) as usize];
        file.read_exact_at(piece, offset)?;
        encoder.write(piece)?;
        offset += piece.len() as u64;
        len -= piece.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Read;

    use proptest::prelude::*;

    use super::*;

    pub(in crate::compression) fn decompress(coding: Coding, mut data: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        match coding {
            Coding::Brotli => {
                let mut decoder = brotli::Decompressor::new(data, 4096);
                decoder.read_to_end(&mut plain).map(drop)
            }
            Coding::Gzip => {
                let mut decoder = flate2::read::GzDecoder::new(data);
                decoder.read_to_end(&mut plain).map(drop)
            }
            Coding::Identity => data.read_to_end(&mut plain).map(drop),
            Coding::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::new(data).expect("a decoder");
                decoder.read_to_end(&mut plain).map(drop)
            }
        }
        .expect("valid");
        plain
    }

    #[test]
    fn file_that_is_shorter_than_was_said_is_an_error() {
        let file = std::sync::Arc::new(File::open("/dev/null").expect("open"));
        let body = Body::File {
            file,
            offset: 0,
            len: 1,
        };
        assert!(compress(Coding::Gzip, 6, &body).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn what_was_compressed_is_decompressed(
            data in "([a-c]{0,8}|\\PC{0,3}){0,200}",
            level in 1_u32..10,
        ) {
            for coding in Coding::ALL {
                let body = Body::Bytes(data.clone().into());
                let compressed = compress(coding, level, &body).expect("compressed");
                prop_assert_eq!(&decompress(coding, &compressed), data.as_bytes());
            }
        }
    }
}
