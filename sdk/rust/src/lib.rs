//! Write an action for Millstream in Rust: a program that reads and writes frames. See README.md.

use std::fmt::Display;
use std::io::{self, ErrorKind, Read, Write};

/// The longest message.
pub const LIMIT: usize = 64 << 20;
const CHUNK: usize = 1 << 18;

/// A program's inputs and outputs.
pub struct Action {
    input: io::StdinLock<'static>,
    output: io::StdoutLock<'static>,
    buffer: Vec<u8>,
    begin: usize,
    end: usize,
    held: Vec<u8>,
}

impl Default for Action {
    fn default() -> Self {
        Self::new()
    }
}

impl Action {
    pub fn new() -> Self {
        Self {
            input: io::stdin().lock(),
            output: io::stdout().lock(),
            buffer: vec![0; CHUNK],
            begin: 0,
            end: 0,
            held: Vec::with_capacity(CHUNK),
        }
    }

    /// Return the next input, None at the end of all inputs.
    pub fn read_message(&mut self) -> Option<Vec<u8>> {
        if self.end - self.begin < 4 && !self.fill(4) {
            return None;
        }
        let head: [u8; 4] = self.buffer[self.begin..self.begin + 4].try_into().unwrap();
        let length = u32::from_be_bytes(head) as usize;
        if length > LIMIT {
            self.fatal(format!("an input of {length} bytes is longer than the limit"));
        }
        if self.end - self.begin < 4 + length {
            self.fill(4 + length);
        }
        let begin = self.begin + 4;
        self.begin = begin + length;
        Some(self.buffer[begin..self.begin].to_vec())
    }

    /// Write an output. In the contract "one" it is the answer to the input; in "stream" more may follow.
    ///
    /// # Panics
    /// If it is empty, which would be taken for an acknowledgement: call `ack_message`.
    pub fn write_message(&mut self, payload: &[u8]) {
        assert!(!payload.is_empty(), "an empty message is an acknowledgement: call ack_message");
        self.frame(payload);
    }

    /// Say that the input is done: without an output, or ("stream") after all of them.
    pub fn ack_message(&mut self) {
        self.frame(&[]);
    }

    /// Log an error and answer the input with no output, so that the count of answers holds.
    pub fn write_error(&mut self, error: impl Display) {
        eprintln!("error: {error}");
        self.ack_message();
    }

    /// Log an error and end the program with code 1; the input is given to another one.
    pub fn fatal(&mut self, error: impl Display) -> ! {
        self.flush();
        eprintln!("fatal: {error}");
        std::process::exit(1)
    }

    /// Write what is held back. Reading does it whenever it has to wait; so does the end of the inputs.
    pub fn flush(&mut self) {
        let written = self.output.write_all(&self.held).and_then(|()| self.output.flush());
        self.held.clear();
        if written.is_err() {
            std::process::exit(1);
        }
    }

    fn frame(&mut self, payload: &[u8]) {
        self.held.extend_from_slice(&(payload.len() as u32).to_be_bytes());
        self.held.extend_from_slice(payload);
        if self.held.len() >= CHUNK {
            self.flush();
        }
    }

    /// Make `wanted` bytes available; false at the end, if it does not lie within a message.
    fn fill(&mut self, wanted: usize) -> bool {
        self.buffer.copy_within(self.begin..self.end, 0);
        self.end -= self.begin;
        self.begin = 0;
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        }
        while self.end < wanted {
            self.flush();
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(0) if self.end == 0 => return false,
                Ok(0) => self.fatal("the input ends within a message"),
                Ok(count) => self.end += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => self.fatal(error),
            }
        }
        true
    }
}
