/** Write an action for Millstream in TypeScript: a program that reads and writes frames. See README.md. */
import { readSync, writeSync } from "node:fs";

/** The longest message. */
export const LIMIT = 64 << 20;
const CHUNK = 1 << 18;
const EMPTY = Buffer.alloc(0);

let input = Buffer.allocUnsafe(CHUNK);
let begin = 0;
let end = 0;
const held = Buffer.allocUnsafe(CHUNK);
let count = 0;

/** Return the next input, null at the end of all inputs. It is valid until the next call. */
export function readMessage(): Buffer | null {
  if (end - begin < 4 && !fill(4)) return null;
  const length = input.readUInt32BE(begin);
  if (length > LIMIT) fatal(`an input of ${length} bytes is longer than the limit`);
  if (end - begin < 4 + length) fill(4 + length);
  const from = begin + 4;
  begin = from + length;
  return input.subarray(from, begin);
}

/** Write an output. In the contract "one" it is the answer to the input; in "stream" more may follow. */
export function writeMessage(payload: Uint8Array): void {
  if (payload.length === 0) throw new Error("an empty message is an acknowledgement: call ackMessage");
  frame(payload);
}

/** Say that the input is done: without an output, or ("stream") after all of them. */
export function ackMessage(): void {
  frame(EMPTY);
}

/** Log an error and answer the input with no output, so that the count of answers holds. */
export function writeError(error: unknown): void {
  log(`error: ${error}`);
  ackMessage();
}

/** Log an error and end the program with code 1; the input is given to another one. */
export function fatal(error: unknown): never {
  flush();
  log(`fatal: ${error}`);
  process.exit(1);
}

/** Write what is held back. Reading does it whenever it has to wait; so does the end of the inputs. */
export function flush(): void {
  const size = count;
  count = 0;
  put(1, held.subarray(0, size));
}

function frame(payload: Uint8Array): void {
  const length = payload.length;
  if (count + 4 + length > CHUNK) flush();
  held.writeUInt32BE(length, count);
  count += 4;
  if (4 + length > CHUNK) {
    flush();
    put(1, payload);
  } else {
    held.set(payload, count);
    count += length;
  }
}

function fill(wanted: number): boolean {
  const room = input.length < wanted ? Buffer.allocUnsafe(wanted) : input;
  input.copy(room, 0, begin, end);
  end -= begin;
  begin = 0;
  input = room;
  while (end < wanted) {
    flush();
    const got = waiting(() => readSync(0, input, end, input.length - end, null));
    if (got === 0) {
      if (end > 0) fatal("the input ends within a message");
      return false;
    }
    end += got;
  }
  return true;
}

function log(line: string): void {
  put(2, Buffer.from(line + "\n"));
}

function put(fd: number, data: Uint8Array): void {
  while (data.length > 0) data = data.subarray(waiting(() => writeSync(fd, data)));
}

/** Pipes may have been set not to wait: ask again, after a moment. */
function waiting(call: () => number): number {
  for (;;) {
    try {
      return call();
    } catch (error) {
      const code = (error as { code?: string }).code;
      if (code === "EOF") return 0;
      if (code !== "EAGAIN") throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
    }
  }
}
