// The numbers of a job's groups over the last hour: asked for once, then extended by what comes.
import { useEffect, useRef, useState } from "preact/hooks";
import { type Pulse, type Series, get, jobPath } from "./api";
import { CAUSES } from "./causes";
import * as live from "./live";

const EVERY_S = 5;
const POINTS = 720;

function extended(series: Series, pulse: Pulse, at: number): Series {
  const cut = Math.max(0, series.at.length + 1 - POINTS);
  const groups: Series["groups"] = {};
  for (const one of pulse.job.groups) {
    const values: Record<string, number | null> = {
      rows_in: pulse.rates.groups_in[one.name] ?? null,
      rows_out: pulse.rates.groups_out[one.name] ?? null,
      lag_rows: one.lag_rows,
      lag_seconds: one.lag_seconds,
      batch_seconds: one.batch_seconds,
      watermark_ms: one.finished ? null : (one.watermark_ms ?? null),
      state_rows: one.state_rows,
      state_bytes: one.state_bytes ?? 0,
      ...Object.fromEntries(
        Object.keys(CAUSES).map((cause) => [`spent_${cause}`, pulse.rates.spent[one.name]?.[cause] ?? 0]),
      ),
    };
    const known = series.groups[one.name] ?? {};
    const none = () => new Array<number | null>(series.at.length).fill(null);
    groups[one.name] = Object.fromEntries(
      Object.entries(values).map(([number, value]) => [number, [...(known[number] ?? none()), value].slice(cut)]),
    );
  }
  return { at: [...series.at, at].slice(cut), groups };
}

export function useSeries(pulse: Pulse): Series | null {
  const [series, set] = useState<Series | null>(null);
  const name = pulse.job.name;
  const lost = live.connection.value !== "live";
  useEffect(() => {
    if (lost) return;
    const ending = new AbortController();
    get<Series>(jobPath(name, "series"), ending.signal).then(set, () => set({ at: [], groups: {} }));
    return () => ending.abort();
  }, [name, lost]);
  const at = live.now.value;
  const last = useRef(0);
  useEffect(() => {
    if (series === null || lost || at < Math.max(last.current, series.at.at(-1) ?? 0) + EVERY_S) return;
    last.current = at;
    set(extended(series, pulse, at));
  }, [at, series, lost]);
  return series;
}
