//! Files that a client reads through the server (`vFile`), so that it has the
//! binaries of then, wherever it runs.

use std::collections::HashMap;
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::command::FileRequest;
use crate::packet;
use crate::target::{File, Target};

/// Error numbers of the protocol.
const ENOENT: u32 = 2;
const EIO: u32 = 5;
const EBADF: u32 = 9;
const EMFILE: u32 = 24;
const EROFS: u32 = 30;
const ENOSYS: u32 = 88;

/// At most so many are open at a time.
const MOST: usize = 256;

enum Open {
    File(std::fs::File),
    Bytes(Vec<u8>),
}

/// The files that a client has open.
#[derive(Default)]
pub struct Files {
    open: HashMap<u32, Open>,
    next: u32,
    /// As whom it sees paths.
    process: Option<u32>,
}

fn error(number: u32) -> Vec<u8> {
    format!("F-1,{number:x}").into_bytes()
}

impl Files {
    /// Answers a request; `room`: how long the answer may be.
    pub fn answer(
        &mut self,
        request: FileRequest,
        target: &mut dyn Target,
        room: usize,
    ) -> Vec<u8> {
        match request {
            FileRequest::SetProcess(pid) => {
                self.process = pid;
                b"F0".to_vec()
            }
            FileRequest::Open { path, flags } => {
                // Reading is the flag 0.
                if flags & 3 != 0 {
                    return error(EROFS);
                }
                self.open(target, &path)
            }
            FileRequest::Read { fd, count, offset } => self.read(fd, count, offset, room),
            FileRequest::Stat(fd) => self.stat(fd),
            FileRequest::Close(fd) => match self.open.remove(&fd) {
                Some(_) => b"F0".to_vec(),
                None => error(EBADF),
            },
            FileRequest::ReadLink(_) => error(ENOENT),
            FileRequest::Other => error(ENOSYS),
        }
    }

    fn open(&mut self, target: &mut dyn Target, path: &[u8]) -> Vec<u8> {
        if self.open.len() >= MOST {
            return error(EMFILE);
        }
        let opened = match target.file(self.process, path) {
            None => return error(ENOENT),
            Some(File::Bytes(bytes)) => Open::Bytes(bytes),
            Some(File::At(place)) => match std::fs::File::open(place) {
                Ok(file) => Open::File(file),
                Err(_) => return error(EIO),
            },
        };
        let fd = self.next;
        self.next = self.next.wrapping_add(1);
        self.open.insert(fd, opened);
        format!("F{fd:x}").into_bytes()
    }

    fn read(&self, fd: u32, count: usize, offset: u64, room: usize) -> Vec<u8> {
        let mut buffer = vec![0; count.min(room)];
        let got = match self.open.get(&fd) {
            None => return error(EBADF),
            Some(Open::File(file)) => match file.read_at(&mut buffer, offset) {
                Ok(got) => got,
                Err(_) => return error(EIO),
            },
            Some(Open::Bytes(bytes)) => {
                let offset = usize::try_from(offset).unwrap_or(usize::MAX);
                let rest = bytes.get(offset..).unwrap_or(&[]);
                let got = rest.len().min(buffer.len());
                for (to, byte) in buffer.iter_mut().zip(rest) {
                    *to = *byte;
                }
                got
            }
        };
        let (data, got) = packet::escape_within(buffer.get(..got).unwrap_or(&[]), room);
        let mut answer = format!("F{got:x};").into_bytes();
        answer.extend(data);
        answer
    }

    fn stat(&self, fd: u32) -> Vec<u8> {
        let (size, mode, time) = match self.open.get(&fd) {
            None => return error(EBADF),
            Some(Open::Bytes(bytes)) => (bytes.len() as u64, 0o100444, 0),
            Some(Open::File(file)) => match file.metadata() {
                Ok(meta) => (meta.len(), meta.mode(), meta.mtime() as u32),
                Err(_) => return error(EIO),
            },
        };
        let mut bytes = Vec::new();
        // Device, inode; the client knows nothing to compare them with.
        for word in [0, fd, mode, 1, 0, 0, 0] {
            bytes.extend(word.to_be_bytes());
        }
        for long in [size, 4096, size.div_ceil(512)] {
            bytes.extend(long.to_be_bytes());
        }
        for word in [time, time, time] {
            bytes.extend(word.to_be_bytes());
        }
        let mut answer = format!("F{:x};", bytes.len()).into_bytes();
        answer.extend(packet::escape(&bytes));
        answer
    }
}
