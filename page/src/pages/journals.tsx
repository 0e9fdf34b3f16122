// Journals: where they are, who reads them, and what is in them.
import { useState } from "preact/hooks";
import { type Journal, type JournalDetail, type JournalRows, download, get, jobPath } from "../api";
import { bytes, clock, rows } from "../format";
import { Empty, Failure, Json, Table, useAttempt, useLoaded } from "../parts";
import { jobRoute } from "../route";

export default jobRoute({
  part: "journals",
  title: "Journals",
  order: 20,
  show: ({ pulse, rest }) => <Journals job={pulse.job.name} journal={rest[0]} />,
});

function Journals({ job, journal }: { job: string; journal?: string }) {
  return journal === undefined ? <All job={job} /> : <One key={journal} job={job} name={journal} />;
}

function All({ job }: { job: string }) {
  const found = useLoaded<Journal[]>(jobPath(job, "journals"), 5);
  if (found.error && !found.value) return <Failure error={found.error} />;
  if (!found.value) return null;
  if (found.value.length === 0)
    return (
      <Empty title="This job has no journals on this engine.">
        <p>
          They are made when the job starts: see its <a href={jobPath(job, "logs")}>log</a> if it does not. Those of a job on several
          engines are on the engines that have its inboxes: <a href="/">Jobs</a> lists them.
        </p>
      </Empty>
    );
  return (
    <Table class="wide">
      <thead>
        <tr>
          <th scope="col">Journal</th>
          <th scope="col">Written by</th>
          <th scope="col" class="number">Rows</th>
          <th scope="col" class="number">On disk</th>
          <th scope="col" class="number">Partitions</th>
          <th scope="col">Readers, how far behind</th>
        </tr>
      </thead>
      <tbody>
        {found.value.map((one) => (
          <tr key={one.name}>
            <th scope="row">
              <a href={jobPath(job, "journals", one.name)}>{one.name}</a>
            </th>
            <td>{one.written_by}</td>
            <td class="number">{rows(one.rows)} rows</td>
            <td class="number">{bytes(one.bytes)}</td>
            <td class="number">{one.partitions.length}</td>
            <td>
              {one.readers.map((reader) => (
                <span class="reader" key={reader.reader}>
                  {reader.reader} <b>{rows(reader.lag)} rows</b>
                </span>
              ))}
            </td>
          </tr>
        ))}
      </tbody>
    </Table>
  );
}

const moment = (microseconds: number | null) => (microseconds === null ? "–" : clock(microseconds / 1e6));

function One({ job, name }: { job: string; name: string }) {
  const found = useLoaded<JournalDetail>(jobPath(job, "journals", name), 5);
  if (found.error && !found.value) return <Failure error={found.error} />;
  if (!found.value) return null;
  const { partitions, columns, readers } = found.value;
  const senders = new Map<string, number>();
  for (const one of partitions)
    for (const [sender, number] of Object.entries(one.highest))
      senders.set(sender, Math.max(number, senders.get(sender) ?? 0));
  return (
    <>
      <h2>
        Journal {name} <span class="soft">written by {found.value.written_by}</span>
      </h2>
      <div class="scroll">
        <Table class="wide">
          <thead>
            <tr>
              <th scope="col" class="number">Partition</th>
              <th scope="col" class="number">First position</th>
              <th scope="col" class="number">Next position</th>
              <th scope="col" class="number">Rows</th>
              <th scope="col" class="number">On disk</th>
              <th scope="col">Event time up to</th>
              <th scope="col">Last append</th>
              <th scope="col">Read up to</th>
            </tr>
          </thead>
          <tbody>
            {partitions.map((one) => (
              <tr key={one.partition}>
                <td class="number">{one.partition}</td>
                <td class="number">{rows(one.begin)}</td>
                <td class="number">{rows(one.end)}</td>
                <td class="number">{rows(one.rows)} rows</td>
                <td class="number">{bytes(one.bytes)}</td>
                <td>{moment(one.running_max ?? null)}</td>
                <td>{moment(one.last_append_at ?? null)}</td>
                <td>
                  {readers.map((reader) => (
                    <span class="reader" key={reader.reader}>
                      {reader.reader} <b>{rows(reader.positions[String(one.partition)] ?? 0)}</b>
                    </span>
                  ))}
                </td>
              </tr>
            ))}
          </tbody>
        </Table>
      </div>
      {senders.size > 0 && (
        <p class="soft">
          Senders: {[...senders].map(([sender, number]) => `${sender} (up to ${rows(number)})`).join(", ")}
        </p>
      )}
      <p class="soft">
        Columns: {Object.entries(columns).map(([column, type]) => `${column} ${type}`).join(", ")}
        {found.value.time && `; event time is ${found.value.time}`}
      </p>
      <Rows job={job} journal={name} partitions={partitions} />
    </>
  );
}

const PAGE = 50;
/** How many rows a file has at most. */
const MOST = 10_000;
/** How many of the newest rows are searched for a text, unless one says from where on. */
const SEARCHED = 100_000;

function Rows({ job, journal, partitions }: { job: string; journal: string; partitions: JournalDetail["partitions"] }) {
  const [partition, choose] = useState(0);
  const [from, start] = useState("");
  const [since, wait] = useState("");
  const [wanted, want] = useState("");
  const [page, set] = useState<JournalRows | null>(null);
  const [count, take] = useState("1000");
  const { error, attempt } = useAttempt();
  const text = wanted ? `&contains=${encodeURIComponent(wanted)}` : "";
  const look = (where: string) => {
    const query = `partition=${partition}&limit=${PAGE}&${where}${text}`;
    return attempt(async () => set(await get<JournalRows>(`${jobPath(job, "journals", journal, "rows")}?${query}`)));
  };
  const at = (position: number) => look(`from=${Math.max(0, position)}`);
  const known = partitions.find((one) => one.partition === partition);
  const newest = () => at((known?.end ?? 0) - (wanted ? SEARCHED : PAGE));
  const begin = () => {
    if (since !== "") return look(`since=${new Date(since).toISOString()}`);
    return from === "" ? newest() : at(Number(from));
  };
  const load = (shown: JournalRows, format: string) => {
    const limit = Math.min(MOST, Math.max(1, Number(count) || 1));
    const query = `partition=${shown.partition}&from=${shown.rows[0]!.position}&limit=${limit}&format=${format}${text}`;
    const path = `${jobPath(job, "journals", journal, "file")}?${query}`;
    return attempt(() => download(path, `${journal}-${shown.partition}.${format}`));
  };
  const columns = page?.rows[0] ? Object.keys(page.rows[0].row) : [];
  return (
    <section>
      <h2>Rows</h2>
      <form
        class="look"
        onSubmit={(event) => {
          event.preventDefault();
          void begin();
        }}
      >
        <label>
          Partition{" "}
          <select value={partition} onChange={(event) => choose(Number(event.currentTarget.value))}>
            {partitions.map((one) => (
              <option key={one.partition} value={one.partition}>
                {one.partition}
              </option>
            ))}
          </select>
        </label>
        <label>
          From position{" "}
          <input type="number" min="0" value={from} placeholder="newest" onInput={(event) => start(event.currentTarget.value)} />
        </label>
        <label>
          or from event time{" "}
          <input type="datetime-local" step="1" value={since} onInput={(event) => wait(event.currentTarget.value)} />
        </label>
        <label>
          with the text{" "}
          <input type="search" value={wanted} placeholder="any" onInput={(event) => want(event.currentTarget.value)} />
        </label>
        <button type="submit" class="main">
          Show rows
        </button>
        {page && (page.rows.length > 0 || page.next !== null) && (
          <>
            <button type="button" disabled={wanted !== "" || page.rows.length === 0} onClick={() => at(page.rows[0]!.position - PAGE)}>
              Earlier
            </button>
            <button type="button" disabled={page.next === null} onClick={() => at(page.next!)}>
              Later
            </button>
          </>
        )}
        {page && page.rows.length > 0 && (
          <>
            <label>
              Rows to download{" "}
              <input type="number" min="1" max={MOST} value={count} onInput={(event) => take(event.currentTarget.value)} />
            </label>
            {["jsonl", "csv", "parquet"].map((format) => (
              <button type="button" key={format} onClick={() => load(page, format)}>
                Download .{format}
              </button>
            ))}
            <span class="soft">from the first row below on; at most {rows(MOST)} rows or 4 MB</span>
          </>
        )}
      </form>
      {error !== null && <Failure error={error} />}
      {page &&
        page.rows.length === 0 &&
        (page.next === null || page.next === undefined ? (
          <Empty title="There are no rows there, or after that.">
            <p>
              {known && known.end > known.begin
                ? `Positions ${rows(known.begin)} to ${rows(known.end - 1)} are there: choose one of these, or an earlier time.`
                : `The partition is empty. "Send rows" on the graph's page puts some into a source.`}
            </p>
          </Empty>
        ) : (
          <Empty title={`No row up to position ${rows(page.next)} has this text. "Later" goes on from there.`} />
        ))}
      {page && page.rows.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="rows">
          <table class="rows">
            <thead>
              <tr>
                <th scope="col" class="number">Position</th>
                {columns.map((one) => (
                  <th scope="col" key={one}>
                    {one}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {page.rows.map((one) => (
                <tr key={one.position}>
                  <td class="number">{rows(one.position)}</td>
                  {columns.map((column) => (
                    <td key={column}>
                      <Json value={one.row[column]} />
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
