//! Compression: the new part of a step is compressed as one piece, unless it is compressed already.

use std::cell::RefCell;
use std::io::Read;

use crate::bytes::{Cursor, Malformed, put_varint};

/// The longest record, uncompressed.
pub const RECORD_BYTES_MAX: u64 = 1 << 40;
/// Bodies shorter than this are left as they are.
const COMPRESS_BYTES_MIN: usize = 96;
/// A low level, since the rollout waits. Level 3 stores 2 % less than level 1 on real rollouts, and higher levels
/// gain little. For a short step it takes half of the caller's time (2 KB with a dictionary: 30 µs of `submit()` in
/// Python, 18 with level 1).
const LEVEL: i32 = 3;
const SHORT_LEVEL: i32 = 1;
/// A body that is longer than this is not short.
const SHORT_BYTES: usize = 4 << 10;

/// A dictionary, ready for use by many threads.
pub struct Dictionary {
    /// The bytes, as stored.
    pub bytes: Vec<u8>,
    compress: zstd::dict::EncoderDictionary<'static>,
    decompress: zstd::dict::DecoderDictionary<'static>,
}

impl std::fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dictionary({} bytes)", self.bytes.len())
    }
}

impl Dictionary {
    /// Prepares a dictionary.
    pub fn new(bytes: Vec<u8>) -> Self {
        let compress = zstd::dict::EncoderDictionary::copy(&bytes, SHORT_LEVEL);
        let decompress = zstd::dict::DecoderDictionary::copy(&bytes);
        Self { bytes, compress, decompress }
    }
}

thread_local! {
    // Making a context costs more than compressing a step with it.
    static CONTEXT: RefCell<zstd::zstd_safe::CCtx<'static>> = RefCell::new(zstd::zstd_safe::CCtx::create());
}

/// The body as it is stored, compressed: a varint length and a zstd frame. `None` if that would not save space.
pub fn compress(body: &[u8], dictionary: Option<&Dictionary>) -> Option<Vec<u8>> {
    if body.len() < COMPRESS_BYTES_MIN || !looks_compressible(body) {
        return None;
    }
    // Directly into its place: a copy of a large step would need memory beside it and its body.
    let bound = zstd::zstd_safe::compress_bound(body.len());
    let mut out = Vec::with_capacity(bound + 10);
    put_varint(&mut out, body.len() as u64);
    let head = out.len();
    out.resize(head + bound, 0);
    let written = CONTEXT.with_borrow_mut(|context| match dictionary {
        Some(dictionary) => {
            context.compress_using_cdict(&mut out[head..], body, dictionary.compress.as_cdict()).ok()
        }
        None => {
            let level = if body.len() <= SHORT_BYTES { SHORT_LEVEL } else { LEVEL };
            context.compress(&mut out[head..], body, level).ok()
        }
    })?;
    out.truncate(head + written);
    out.shrink_to_fit();
    // Under three per cent is not worth the reader's time.
    (out.len() < body.len() - body.len() / 32).then_some(out)
}

/// A higher level for blocks, since no caller waits for `compact`.
const BLOCK_LEVEL: i32 = 9;

/// A block as it is stored, compressed as by [`compress`]. `None` if that would not save space.
pub fn compress_block(body: &[u8]) -> Option<Vec<u8>> {
    let mut frame = Vec::with_capacity(zstd::zstd_safe::compress_bound(body.len()));
    let packed = CONTEXT.with_borrow_mut(|context| context.compress(&mut frame, body, BLOCK_LEVEL).ok())?;
    let mut out = Vec::with_capacity(packed + 10);
    put_varint(&mut out, body.len() as u64);
    out.extend_from_slice(&frame[..packed]);
    (out.len() < body.len()).then_some(out)
}

/// A dictionary trained from samples; `None` if they do not yield one.
pub fn train_dictionary(samples: &[&[u8]], bytes_max: usize) -> Option<Vec<u8>> {
    zstd::dict::from_samples(samples, bytes_max).ok()
}

/// A frame may unfold to this many times its length, or to this many bytes, at once. One that claims more is unfolded
/// bit by bit.
const UNFOLDS_TO: u64 = 64;
const UNFOLDS_TO_BYTES: u64 = 64 << 10;

thread_local! {
    // As for compressing: making one costs more than unpacking a step with it.
    static UNPACKING: RefCell<Option<zstd::zstd_safe::DCtx<'static>>> = const { RefCell::new(None) };
}

/// Decompresses what [`compress`] made. Memory grows with the real content, not with the claimed length.
pub fn decompress(stored: &[u8], dictionary: Option<&Dictionary>) -> Result<Vec<u8>, Malformed> {
    let mut cursor = Cursor::new(stored);
    let length = cursor.varint()?;
    let at = cursor.position();
    let bad = |what| Malformed { what, at };
    if length > RECORD_BYTES_MAX {
        return Err(bad("a body that is longer than any"));
    }
    let frame = &stored[at..];
    let out = if length <= (frame.len() as u64).saturating_mul(UNFOLDS_TO).max(UNFOLDS_TO_BYTES) {
        decompress_at_once(frame, length as usize, dictionary)
    } else {
        decompress_slowly(frame, length, dictionary)
    };
    let out = out.ok_or_else(|| bad("a zstd frame cannot be read"))?;
    if out.len() as u64 == length {
        Ok(out)
    } else {
        Err(bad("a zstd frame has another length than was said"))
    }
}

fn decompress_at_once(frame: &[u8], length: usize, dictionary: Option<&Dictionary>) -> Option<Vec<u8>> {
    UNPACKING.with_borrow_mut(|context| {
        if context.is_none() {
            *context = zstd::zstd_safe::DCtx::try_create();
        }
        let context = context.as_mut()?;
        let mut out = Vec::with_capacity(length);
        let unpacked = match dictionary {
            Some(it) => context.decompress_using_ddict(&mut out, frame, it.decompress.as_ddict()),
            None => context.decompress(&mut out, frame),
        };
        unpacked.ok().map(|_| out)
    })
}

fn decompress_slowly(frame: &[u8], length: u64, dictionary: Option<&Dictionary>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    match dictionary {
        Some(it) => {
            let decoder =
                zstd::stream::read::Decoder::with_prepared_dictionary(frame, &it.decompress).ok()?;
            decoder.take(length + 1).read_to_end(&mut out).ok()?;
        }
        None => {
            let decoder = zstd::stream::read::Decoder::with_buffer(frame).ok()?;
            decoder.take(length + 1).read_to_end(&mut out).ok()?;
        }
    }
    Some(out)
}

/// A quick look at some windows: do bytes repeat more often than in noise?
fn looks_compressible(body: &[u8]) -> bool {
    const WINDOW: usize = 256;
    const WINDOWS: usize = 8;
    if body.len() <= WINDOW {
        return repeats_more_than_noise(body);
    }
    // A short body is judged by fewer windows, so that the look costs less than the copy.
    let windows = (body.len() / (4 * WINDOW)).clamp(2, WINDOWS);
    let stride = (body.len() - WINDOW) / (windows - 1);
    (0..windows).any(|i| repeats_more_than_noise(&body[i * stride..i * stride + WINDOW]))
}

/// The chance that two bytes are equal is 1/256 in noise, more in anything that compresses.
fn repeats_more_than_noise(window: &[u8]) -> bool {
    let mut counts = [0u16; 256];
    for &byte in window {
        counts[usize::from(byte)] += 1;
    }
    let n = window.len() as u64;
    let pairs: u64 = counts.iter().map(|&c| u64::from(c) * u64::from(c).saturating_sub(1)).sum();
    // 1.6 / 256: pairs in 256 bytes of noise stay within half of their mean of n² / 256.
    pairs * 256 * 5 > n * n.saturating_sub(1) * 8
}
