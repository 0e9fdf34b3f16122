// The jobs as they are: one stream of events, opened again when it is lost.
import { signal } from "@preact/signals";
import { type Beat, type Engine, type Lines, type Pulse, get, open, Problem } from "./api";

export type Connection = "connecting" | "live" | "lost" | "refused";

export const connection = signal<Connection>("connecting");
export const lostAt = signal(0);
export const engine = signal<Engine | null>(null);
export const jobs = signal<ReadonlyMap<string, Pulse>>(new Map());
/** The engine's clock at the last event, in seconds: ages count from it, whatever this host's says. */
export const now = signal(Date.now() / 1000);
/** Lag and rows a second of each job over the last minutes. */
export const lines = signal<ReadonlyMap<string, Lines>>(new Map());

const SILENT_MS = 25_000;
const HIDDEN_MS = 30_000;
const POINTS = 60;
const EVERY_S = 5;

let stream: AbortController | null = null;
let pause = 500;

let ahead = 0;

export function start(): void {
  let hiding = 0;
  setInterval(() => {
    if (connection.value === "live" && !document.hidden) now.value = Date.now() / 1000 + ahead;
  }, 1_000);
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiding);
    if (document.hidden) {
      // A page that nobody looks at costs the engine nothing.
      hiding = setTimeout(() => stop(), HIDDEN_MS);
    } else if (stream === null) {
      void follow();
    }
  });
  void follow();
}

function stop(): void {
  stream?.abort();
  stream = null;
  // What comes later does not follow on what was there: plots are asked for again.
  connection.value = "connecting";
}

async function follow(): Promise<void> {
  const mine = new AbortController();
  stream = mine;
  try {
    await read(mine);
    lost();
  } catch (error) {
    if (mine.signal.aborted && stream !== mine) return;
    if (error instanceof Problem && (error.status === 401 || error.status === 403)) {
      connection.value = "refused";
    } else {
      lost();
    }
  }
  if (stream === mine) {
    setTimeout(() => stream === mine && void follow(), pause);
    pause = Math.min(pause * 1.6, 5_000);
  }
}

function lost(): void {
  if (connection.value !== "lost") lostAt.value = Date.now() / 1000;
  connection.value = "lost";
}

async function read(mine: AbortController): Promise<void> {
  let silent = 0;
  const heard = () => {
    clearTimeout(silent);
    silent = setTimeout(() => mine.abort(new Error("silent")), SILENT_MS);
  };
  try {
    const answer = await open("/live", { signal: mine.signal, headers: { Accept: "text/event-stream" } });
    const known = await get<Record<string, Lines>>(`/lines?points=${POINTS}`, mine.signal);
    lines.value = new Map(Object.entries(known));
    const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      heard();
      const { value, done } = await reader.read();
      if (done) return;
      text += value;
      const parts = text.split("\n\n");
      text = parts.pop()!;
      for (const part of parts) if (part.startsWith("data: ")) apply(JSON.parse(part.slice(6)));
      pause = 500;
    }
  } finally {
    clearTimeout(silent);
  }
}

function apply(beat: Beat): void {
  const next = new Map(beat.whole ? [] : jobs.value);
  for (const one of beat.jobs) next.set(one.job.name, one);
  for (const name of beat.gone ?? []) next.delete(name);
  engine.value = beat.engine;
  now.value = beat.at;
  ahead = beat.at - Date.now() / 1000;
  jobs.value = next;
  lines.value = extended(next, beat.at);
  connection.value = "live";
}

function extended(pulses: ReadonlyMap<string, Pulse>, at: number): ReadonlyMap<string, Lines> {
  const found = new Map<string, Lines>();
  for (const [name, one] of pulses) {
    const known = lines.value.get(name) ?? { at: [], rows_in: [], rows_out: [], lag_rows: [] };
    const last = known.at.at(-1);
    if (last !== undefined && at < last + EVERY_S) {
      found.set(name, known);
      continue;
    }
    found.set(name, {
      at: [...known.at, at].slice(-POINTS),
      rows_in: [...known.rows_in, one.rates.rows_in].slice(-POINTS),
      rows_out: [...known.rows_out, one.rates.rows_out].slice(-POINTS),
      lag_rows: [...known.lag_rows, one.job.unprocessed].slice(-POINTS),
    });
  }
  return found;
}
