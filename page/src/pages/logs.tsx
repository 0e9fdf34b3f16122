// The end of a job's log, followed and searched.
import { useEffect, useRef, useState } from "preact/hooks";
import { type Log, get, jobPath } from "../api";
import { Empty, Failure } from "../parts";
import { jobRoute } from "../route";

export default jobRoute({
  part: "logs",
  title: "Log",
  order: 70,
  show: ({ pulse }) => <Logs job={pulse.job.name} />,
});

const MOST = 5_000;

function Logs({ job }: { job: string }) {
  const [lines, set] = useState<string[] | null>(null);
  const [error, fail] = useState<unknown>(null);
  const [wanted, want] = useState("");
  const [follows, follow] = useState(true);
  const end = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const ending = new AbortController();
    let place: string | null = null;
    let timer = 0;
    const load = async () => {
      const query = place === null ? "lines=1000" : `after=${encodeURIComponent(place)}`;
      try {
        const found = await get<Log>(`${jobPath(job, "logs")}?${query}`, ending.signal);
        place = found.next;
        if (found.lines.length || place !== null)
          set((before) => [...(before ?? []), ...found.lines].slice(-MOST));
        fail(null);
      } catch (problem) {
        if (ending.signal.aborted) return;
        fail(problem);
      }
      timer = setTimeout(load, 2_000);
    };
    void load();
    return () => {
      ending.abort();
      clearTimeout(timer);
    };
  }, [job]);
  useEffect(() => {
    if (follows) end.current?.scrollIntoView({ block: "nearest" });
  }, [lines, follows, wanted]);
  if (lines === null) return error ? <Failure error={error} /> : null;
  const found = wanted ? lines.filter((line) => line.toLowerCase().includes(wanted.toLowerCase())) : lines;
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
          {found.length} of {lines.length} lines
        </span>
      </form>
      {error !== null && <Failure error={error} />}
      {lines.length === 0 ? (
        <Empty title="The log is empty: its driver has printed nothing." />
      ) : (
        <div class="log" tabIndex={0} role="log" aria-label="log">
          {found.map((line, at) => (
            <div key={at} class={/\b(ERROR|FATAL)\b|Traceback/.test(line) ? "bad-text" : undefined}>
              {line}
            </div>
          ))}
          <div ref={end} />
        </div>
      )}
    </>
  );
}
