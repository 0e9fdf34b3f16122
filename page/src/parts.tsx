// Small things that all pages are made of.
import { type ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { get, Problem } from "./api";
import type { Level } from "./health";

const STATES: Record<string, Level | "calm"> = {
  running: "ok",
  failed: "bad",
  restarting: "bad",
  starting: "calm",
  draining: "warn",
  drained: "calm",
  finished: "calm",
  deployed: "calm",
};

export function State({ state }: { state: string }) {
  return <span class={`state ${STATES[state] ?? "calm"}`}>{state}</span>;
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="lead">{title}</p>
      {children}
    </div>
  );
}

export function Failure({ error }: { error: unknown }) {
  const hint = error instanceof Problem ? error.hint : undefined;
  return (
    <div class="failure" role="alert">
      {error instanceof Error ? error.message : String(error)}
      {hint && <span class="hint"> {hint}</span>}
    </div>
  );
}

/** A line without axes; the highest value is its height. */
export function Sparkline({ values, label }: { values: (number | null | undefined)[]; label: string }) {
  const known = values.map((one) => one ?? 0);
  const top = Math.max(...known, 1);
  const step = 96 / Math.max(known.length - 1, 1);
  const points = known.map((one, at) => `${(at * step + 2).toFixed(1)},${(22 - (one / top) * 20).toFixed(1)}`);
  return (
    <svg class="sparkline" viewBox="0 0 100 24" role="img" aria-label={label} preserveAspectRatio="none">
      {known.length > 1 && (
        <>
          <polygon points={`2,23 ${points.join(" ")} 98,23`} />
          <polyline points={points.join(" ")} />
        </>
      )}
    </svg>
  );
}

export interface Loaded<T> {
  value?: T;
  error?: unknown;
  again: () => void;
}

/** What a path answers; asked again when the path changes, and every so many seconds. */
export function useLoaded<T>(path: string | null, everySeconds = 0): Loaded<T> {
  const [found, set] = useState<{ path: string | null; value?: T; error?: unknown }>({ path: null });
  const [round, again] = useState(0);
  useEffect(() => {
    if (path === null) return;
    const ending = new AbortController();
    let timer = 0;
    const load = async () => {
      try {
        const value = await get<T>(path, ending.signal);
        set({ path, value });
      } catch (error) {
        if (ending.signal.aborted) return;
        set((before) => ({ path, error, value: before.path === path ? before.value : undefined }));
      }
      if (everySeconds && !ending.signal.aborted) timer = setTimeout(load, everySeconds * 1000);
    };
    void load();
    return () => {
      ending.abort();
      clearTimeout(timer);
    };
  }, [path, everySeconds, round]);
  const current = found.path === path ? found : { path };
  return { ...current, again: () => again(round + 1) };
}

/** What several paths answer, those that do, asked every so many seconds. */
export function useAllLoaded<T>(paths: string[], everySeconds: number): T[] {
  const [found, set] = useState<T[]>([]);
  const key = paths.join("\n");
  useEffect(() => {
    const ending = new AbortController();
    let timer = 0;
    const load = async () => {
      const all = await Promise.allSettled(paths.map((one) => get<T>(one, ending.signal)));
      if (ending.signal.aborted) return;
      set(all.flatMap((one) => (one.status === "fulfilled" ? [one.value] : [])));
      timer = setTimeout(load, everySeconds * 1000);
    };
    void load();
    return () => {
      ending.abort();
      clearTimeout(timer);
    };
  }, [key, everySeconds]);
  return found;
}

/** A row of users' data as JSON, on one line. */
export function Json({ value }: { value: unknown }) {
  return <code class="json">{JSON.stringify(value)}</code>;
}

export function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div class="fact">
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
