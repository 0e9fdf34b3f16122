// Small things that all pages are made of.
import { type ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
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
  up: "ok",
  away: "bad",
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

/** A table whose rows are cards on a phone: each cell has the heading of its column. */
export function Table({ class: name, children }: { class: string; children: ComponentChildren }) {
  const table = useRef<HTMLTableElement>(null);
  useLayoutEffect(() => {
    const [heads, body] = [table.current!.tHead!.rows[0]!.cells, table.current!.tBodies[0]!];
    for (const { cells } of body.rows)
      for (let at = 0; at < cells.length; at++) {
        const label = heads[at]?.textContent ?? "";
        if (cells[at]!.dataset.label !== label) cells[at]!.dataset.label = label;
      }
  });
  return (
    <table ref={table} class={`${name} cards`}>
      {children}
    </table>
  );
}

export interface Loaded<T> {
  value?: T;
  error?: unknown;
  again: () => void;
}

/** What some work finds for a key; done again when the key changes, and every so many seconds. */
export function useRepeated<T>(key: string | null, everySeconds: number, work: (signal: AbortSignal) => Promise<T>): Loaded<T> {
  const [found, set] = useState<{ key: string | null; value?: T; error?: unknown }>({ key: null });
  const [round, again] = useState(0);
  useEffect(() => {
    if (key === null) return;
    const ending = new AbortController();
    let timer = 0;
    const load = async () => {
      if (document.hidden && everySeconds) {
        // Nobody looks: ask again later.
        timer = setTimeout(load, everySeconds * 1000);
        return;
      }
      try {
        const value = await work(ending.signal);
        set({ key, value });
      } catch (error) {
        if (ending.signal.aborted) return;
        set((before) => ({ key, error, value: before.key === key ? before.value : undefined }));
      }
      if (everySeconds && !ending.signal.aborted) timer = setTimeout(load, everySeconds * 1000);
    };
    void load();
    return () => {
      ending.abort();
      clearTimeout(timer);
    };
  }, [key, everySeconds, round]);
  const current = found.key === key ? found : {};
  return { ...current, again: () => again(round + 1) };
}

/** What a path answers; asked again when the path changes, and every so many seconds. */
export function useLoaded<T>(path: string | null, everySeconds = 0): Loaded<T> {
  return useRepeated(path, everySeconds, (signal) => get<T>(path!, signal));
}

/** What several paths answer, those that do, asked every so many seconds. */
export function useAllLoaded<T>(paths: string[], everySeconds: number): T[] {
  const all = async (signal: AbortSignal) => {
    const found = await Promise.allSettled(paths.map((one) => get<T>(one, signal)));
    return found.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
  };
  return useRepeated(paths.join("\n"), everySeconds, all).value ?? [];
}

/** Work that may fail: whether it goes on, and why the last one failed. */
export function useAttempt() {
  const [error, fail] = useState<unknown>(null);
  const [working, set] = useState(false);
  const attempt = async (work: () => Promise<unknown>) => {
    fail(null);
    set(true);
    try {
      await work();
    } catch (problem) {
      fail(problem);
    }
    set(false);
  };
  return { error, working, attempt };
}

/** What makes a shape of a picture a button, for the mouse and the keyboard. */
export const asButton = (act: () => void) => ({
  tabindex: 0,
  role: "button" as const,
  onClick: act,
  onKeyDown: (event: KeyboardEvent) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    act();
  },
});

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
