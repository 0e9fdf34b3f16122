/** The programs that every SDK is tested with: echo, filter, split, slow. */
import * as action from "./action.js";

function echo(payload: Buffer): void {
  if (payload.length === 0) action.ackMessage();
  else action.writeMessage(payload);
}

function filter(payload: Buffer, mod: number): void {
  if (payload.toString("latin1") === "fatal") action.fatal("as you wish");
  if (payload.length !== 4) action.writeError(`${payload.length} bytes are no number`);
  else if (payload.readUInt32BE(0) % mod !== 0) action.ackMessage();
  else action.writeMessage(payload);
}

function split(payload: Buffer): void {
  let begin = 0;
  for (let at = 0; at <= payload.length; at++) {
    if (at < payload.length && payload[at] !== 44) continue;
    if (at > begin) action.writeMessage(payload.subarray(begin, at));
    begin = at + 1;
  }
  action.ackMessage();
}

function slow(payload: Buffer, milliseconds: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds);
  echo(payload);
}

const argument = Number(process.argv[3] ?? 1);
const programs: Record<string, (payload: Buffer, argument: number) => void> = { echo, filter, split, slow };
const work = programs[process.argv[2] ?? "echo"] ?? echo;
for (let payload; (payload = action.readMessage()) !== null; ) work(payload, argument);
