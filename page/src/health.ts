// What is wrong with a job, worst first; the overview shows those that fail before all others.
import type { Pulse } from "./api";
import { duration, rows } from "./format";

export type Level = "bad" | "warn" | "ok";

export interface Finding {
  level: Level;
  text: string;
}

const SLOW_S = 60;

export function findings({ job, slow }: Pulse): Finding[] {
  const found: Finding[] = [];
  const add = (level: Level, text: string) => found.push({ level, text });
  if (job.state === "failed") add("bad", job.reason ?? "it has failed");
  else if (job.state === "restarting") add("bad", job.reason ?? "its driver is started again");
  else if (job.reason) add("warn", job.reason);
  for (const [name, one] of Object.entries(job.sources))
    if (one.error) add("bad", `source ${name}: ${one.error}`);
    else if (one.waiting) add("warn", `source ${name} waits: ${one.waiting}`);
  for (const one of Object.values(slow)) add("warn", one);
  for (const one of job.groups)
    if (!(one.name in slow) && one.lag_rows > 0 && one.lag_seconds > SLOW_S)
      add("warn", `group ${one.name} is ${duration(one.lag_seconds)} behind, ${rows(one.lag_rows)} rows`);
  for (const one of job.runtimes)
    if (one.state === "silent" || one.state === "waiting") add("warn", `runtime ${one.node} is ${one.state}`);
  if (job.waiting > 0) add("warn", `${rows(job.waiting)} dead letters wait to be replayed or discarded`);
  for (const notice of job.notices) add("warn", notice);
  return found.sort((a, b) => (a.level === b.level ? 0 : a.level === "bad" ? -1 : 1));
}

export const worst = (found: Finding[]): Level => found[0]?.level ?? "ok";

const ORDER: Record<Level, number> = { bad: 0, warn: 1, ok: 2 };

export function byHealth(pulses: Iterable<Pulse>): { pulse: Pulse; found: Finding[] }[] {
  return [...pulses]
    .map((pulse) => ({ pulse, found: findings(pulse) }))
    .sort(
      (a, b) =>
        ORDER[worst(a.found)] - ORDER[worst(b.found)] || a.pulse.job.name.localeCompare(b.pulse.job.name),
    );
}

const YEAR_S = 365 * 86400;

/** Whether a moment is that of time that has ended: far from the clock. */
export const ended = (at: number, now: number) => at > now + YEAR_S;

/** Of the group that is furthest behind; those that have ended are behind nothing. */
export function watermarkAge({ job }: Pulse, now: number): string {
  const going = job.groups.filter((one) => !one.finished && !ended((one.watermark_ms ?? 0) / 1000, now));
  if (going.length === 0) return job.groups.length ? "ended" : "–";
  const known = going.flatMap((one) => one.watermark_ms ?? []);
  return known.length ? duration(Math.max(0, now - Math.min(...known) / 1000)) : "–";
}
