//! From a path to what is sent for it: through the cache, or by opening the file.
//!
//! What is cached is good if the path leads to the same file in the same state: one statx(2), once
//! for all requests that the loop found with one wait. These were under way when the file was
//! looked at, so none of them is told of a state from before it was sent (but one that was sent
//! behind another, without waiting for the answer). That call follows links wherever they lead, so a path that has come to lead out of the root, to a
//! file that was served from within it before and did not change since, is not noticed by it (a
//! directory was moved out and a link put in its place). For that the file is opened anew, with
//! the kernel's check, once a second.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use windlass::files::{FileKind, OpenFile};
use windlass::session::Now;

use super::StaticFiles;
use super::cache::{Cached, OpenFileCache};
use super::content_type::ContentType;
use super::missing::{Missing, is_out_of_descriptors};
use super::options::Precompressed;
use super::path::LookupPath;
use super::representation::{Dress, Representation};
use crate::content_coding::{AcceptedCodings, Coding};
use crate::request::Request;

/// How long it is believed that a path stays within the root while its file stays the same.
const CONTAINED_FOR: Duration = Duration::from_secs(1);

/// A look-up for one request.
#[derive(Debug)]
pub(super) struct Lookup<'a> {
    pub(super) site: &'a StaticFiles,
    pub(super) cache: &'a mut OpenFileCache,
    pub(super) now: Now,
}

impl Lookup<'_> {
    /// What is sent for `path`, in the coding that the client wants most.
    pub(super) fn find(
        &mut self,
        path: &mut LookupPath,
        request: &Request<'_>,
    ) -> Result<Arc<Representation>, Missing> {
        let original = self.find_in(path, Coding::Identity)?;
        if self.site.precompressed == Precompressed::Off {
            return Ok(original);
        }
        for coding in AcceptedCodings::parse(request).by_preference() {
            if coding == Coding::Identity {
                return Ok(original);
            }
            // Whatever is wrong with the sibling, there is the original.
            if let Ok(sibling) = self.find_in(path, coding)
                && sibling.status.modified.secs >= original.status.modified.secs
            {
                return Ok(sibling);
            }
        }
        Err(Missing::NotAcceptable)
    }

    fn find_in(
        &mut self,
        path: &mut LookupPath,
        coding: Coding,
    ) -> Result<Arc<Representation>, Missing> {
        let root = &self.site.root;
        let mut opened = None;
        if let Some(cached) = self.cache.get(path.key(), coding) {
            if cached.checked_at == self.now.monotonic {
                return Ok(Arc::clone(&cached.representation));
            }
            let is_same = |status| status == cached.representation.status;
            let glance = path.with_suffix(coding.extension(), |path| root.glance(path));
            if glance.is_ok_and(is_same) {
                if self.now.monotonic < cached.contained_until {
                    cached.checked_at = self.now.monotonic;
                    return Ok(Arc::clone(&cached.representation));
                }
                let open = open(self.site, path, coding);
                let is_good = open.as_ref().is_ok_and(|open| is_same(open.status));
                if is_good && cached.representation.is_complete() {
                    cached.contained_until = self.now.monotonic + CONTAINED_FOR;
                    cached.checked_at = self.now.monotonic;
                    return Ok(Arc::clone(&cached.representation));
                }
                opened = Some(open);
            }
            self.cache.remove(path.key(), coding);
        }
        let opened = match opened.unwrap_or_else(|| open(self.site, path, coding)) {
            Err(error) if is_out_of_descriptors(&error) => {
                self.cache.clear();
                open(self.site, path, coding)
            }
            other => other,
        };
        self.lay_out(opened?, path, coding)
    }

    /// Lays out what was opened, and keeps it if that is safe.
    fn lay_out(
        &mut self,
        opened: OpenFile,
        path: &LookupPath,
        coding: Coding,
    ) -> Result<Arc<Representation>, Missing> {
        match opened.status.kind {
            FileKind::File => {}
            FileKind::Directory => return Err(Missing::Slash),
            FileKind::Other => return Err(Missing::NotFound),
        }
        let varies_by_coding = self.site.precompressed == Precompressed::Siblings;
        let dress = Dress {
            content_type: ContentType::of_path(path.relative()),
            coding,
            cache_control: self.site.cache_control.as_deref(),
            vary: match (varies_by_coding, path.is_fallback()) {
                (false, false) => "",
                (false, true) => "Accept",
                (true, false) => "Accept-Encoding",
                (true, true) => "Accept, Accept-Encoding",
            },
        };
        let representation = Representation::new(opened, dress, self.now.unix_ms);
        let representation = Arc::new(representation);
        if representation.is_settled() {
            let cached = Cached {
                representation: Arc::clone(&representation),
                contained_until: self.now.monotonic + CONTAINED_FOR,
                checked_at: self.now.monotonic,
            };
            self.cache.insert(path.key(), coding, cached);
        }
        Ok(representation)
    }
}

fn open(site: &StaticFiles, path: &mut LookupPath, coding: Coding) -> io::Result<OpenFile> {
    path.with_suffix(coding.extension(), |path| {
        site.root.open_file(path, site.links)
    })
}
