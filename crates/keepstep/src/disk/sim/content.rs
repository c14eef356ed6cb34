//! The bytes of a simulated file, in pages that copies share until one of them is written to.
//!
//! Whatever lies past the length, inside the last page, is zero.

use std::sync::{Arc, OnceLock};

/// What a disk writes whole, unless the power fails in the middle of it.
pub(super) const SECTOR_BYTES: usize = 512;
const PAGE_BYTES: usize = 4096;
const SECTORS_PER_PAGE: u64 = (PAGE_BYTES / SECTOR_BYTES) as u64;

pub(super) type Sector = [u8; SECTOR_BYTES];
type Page = [u8; PAGE_BYTES];

pub(super) const ZEROS: Sector = [0; SECTOR_BYTES];

#[derive(Clone, Default)]
pub(super) struct Content {
    pages: Vec<Arc<Page>>,
    bytes: u64,
}

fn zero_page() -> Arc<Page> {
    static ZERO: OnceLock<Arc<Page>> = OnceLock::new();
    Arc::clone(ZERO.get_or_init(|| Arc::new([0; PAGE_BYTES])))
}

impl Content {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn read(&self, out: &mut [u8], offset: u64) -> usize {
        let count = self.bytes.saturating_sub(offset).min(out.len() as u64) as usize;
        let mut done = 0;
        while done < count {
            let at = offset as usize + done;
            let inside = at % PAGE_BYTES;
            let step = (PAGE_BYTES - inside).min(count - done);
            out[done..done + step].copy_from_slice(&self.pages[at / PAGE_BYTES][inside..inside + step]);
            done += step;
        }
        count
    }

    pub(super) fn write(&mut self, data: &[u8], offset: u64) {
        let end = offset + data.len() as u64;
        self.bytes = self.bytes.max(end);
        let pages = (self.bytes as usize).div_ceil(PAGE_BYTES);
        if self.pages.len() < pages {
            self.pages.resize_with(pages, zero_page);
        }
        let mut done = 0;
        while done < data.len() {
            let at = offset as usize + done;
            let inside = at % PAGE_BYTES;
            let step = (PAGE_BYTES - inside).min(data.len() - done);
            let page = Arc::make_mut(&mut self.pages[at / PAGE_BYTES]);
            page[inside..inside + step].copy_from_slice(&data[done..done + step]);
            done += step;
        }
    }

    /// The bytes of a sector; zeros past the end.
    pub(super) fn sector(&self, sector: u64) -> &Sector {
        let inside = (sector % SECTORS_PER_PAGE) as usize * SECTOR_BYTES;
        self.pages
            .get((sector / SECTORS_PER_PAGE) as usize)
            .and_then(|page| page[inside..].first_chunk())
            .unwrap_or(&ZEROS)
    }

    /// Puts other bytes into a sector that the file has. The length stays.
    pub(super) fn replace_sector(&mut self, sector: u64, with: &Sector) {
        let inside = (sector % SECTORS_PER_PAGE) as usize * SECTOR_BYTES;
        let page = Arc::make_mut(&mut self.pages[(sector / SECTORS_PER_PAGE) as usize]);
        page[inside..inside + SECTOR_BYTES].copy_from_slice(with);
    }

    /// Makes it this long, with zeros past the end of what stays.
    pub(super) fn cut_to(&mut self, bytes: u64) {
        self.bytes = bytes;
        self.pages.resize_with((bytes as usize).div_ceil(PAGE_BYTES), zero_page);
        let inside = bytes as usize % PAGE_BYTES;
        if let Some(last) = self.pages.last_mut().filter(|_| inside > 0)
            && last[inside..].iter().any(|&byte| byte != 0)
        {
            Arc::make_mut(last)[inside..].fill(0);
        }
    }
}
