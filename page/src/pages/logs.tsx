// A job's log, followed and searched: the engine searches, so that old lines are found too.
import { useEffect, useRef, useState } from "preact/hooks";
import { type Log, get, jobPath } from "../api";
import { rows } from "../format";
import { Empty, Failure } from "../parts";
import { jobRoute } from "../route";

export default jobRoute({
  part: "logs",
  title: "Log",
  order: 70,
  show: ({ pulse }) => <Logs key={pulse.job.name} job={pulse.job.name} />,
});

const MOST = 5_000;
const TYPING_MS = 300;
const LEVEL = /\b(ERROR|FATAL|CRITICAL)\b|Traceback/;

/** The lines of a log that have a text, and those that come. */
function useLines(job: string, wanted: string) {
  const [lines, set] = useState<string[] | null>(null);
  const [error, fail] = useState<unknown>(null);
  useEffect(() => {
    const ending = new AbortController();
    let place: string | null = null;
    let timer = 0;
    const load = async () => {
      const query = new URLSearchParams(place === null ? { lines: "1000" } : { after: place });
      if (wanted) query.set("contains", wanted);
      try {
        if (!document.hidden) {
          const first = place === null;
          const found = await get<Log>(`${jobPath(job, "logs")}?${query}`, ending.signal);
          place = found.next;
          if (first || found.lines.length) set((before) => [...(first ? [] : (before ?? [])), ...found.lines].slice(-MOST));
          fail(null);
        }
      } catch (problem) {
        if (ending.signal.aborted) return;
        fail(problem);
      }
      timer = setTimeout(load, 2_000);
    };
    timer = setTimeout(load, wanted ? TYPING_MS : 0);
    return () => {
      ending.abort();
      clearTimeout(timer);
    };
  }, [job, wanted]);
  return { lines, error };
}

function Logs({ job }: { job: string }) {
  const [wanted, want] = useState("");
  const { lines, error } = useLines(job, wanted);
  const [follows, follow] = useState(true);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (follows && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines, follows]);
  if (lines === null) return error ? <Failure error={error} /> : null;
  return (
    <>
      <form class="look" onSubmit={(event) => event.preventDefault()}>
        <label>
          Search <input type="search" value={wanted} onInput={(event) => want(event.currentTarget.value)} />
        </label>
        <label>
          <input type="checkbox" checked={follows} onChange={(event) => follow(event.currentTarget.checked)} /> Follow
        </label>
        <span class="soft">
          {rows(lines.length)} {wanted ? "lines with this text" : "lines"}
          {lines.length >= 1000 && ", the newest"}
        </span>
      </form>
      {error !== null && <Failure error={error} />}
      {lines.length === 0 ? (
        wanted ? (
          <Empty title="No line has this text." />
        ) : (
          <Empty title="The log is empty: its driver has printed nothing." />
        )
      ) : (
        <div ref={box} class="log" tabIndex={0} role="log" aria-label="log">
          {lines.map((line, at) => (
            <div key={at} class={LEVEL.test(line) ? "bad-text" : undefined}>
              {line}
            </div>
          ))}
        </div>
      )}
    </>
  );
}
