// What stages keep per key.
import { useState } from "preact/hooks";
import { type Stage, type StateRows, get, jobPath } from "../api";
import { bytes, rows } from "../format";
import { Empty, Failure, Json, Table, useAttempt, useLoaded } from "../parts";
import { jobRoute } from "../route";

export default jobRoute({
  part: "state",
  title: "State",
  order: 40,
  show: ({ pulse }) => <StateTab job={pulse.job.name} />,
});

function StateTab({ job }: { job: string }) {
  const found = useLoaded<Stage[]>(jobPath(job, "state"));
  const [stage, choose] = useState<Stage | null>(null);
  if (found.error) return <Failure error={found.error} />;
  if (!found.value) return <Empty title="The driver reads its state …" />;
  if (found.value.length === 0)
    return (
      <Empty title="No stage of this job has state yet.">
        <p>
          Windows, <code>fold</code>, <code>distinct</code>, <code>match</code> and joins of streams keep state, from their first batch
          with events on. If the flow has one of them, send it rows: <a href={jobPath(job)}>Graph</a>
        </p>
      </Empty>
    );
  return (
    <>
      <Table class="wide">
        <thead>
          <tr>
            <th scope="col">Stage</th>
            <th scope="col">Group</th>
            <th scope="col">Kind</th>
            <th scope="col" class="number">Keys</th>
            <th scope="col" class="number">On disk</th>
            <th scope="col" class="number">Batch</th>
          </tr>
        </thead>
        <tbody>
          {found.value.map((one) => (
            <tr key={`${one.group}.${one.stage}`}>
              <th scope="row">
                <button type="button" class="link" onClick={() => choose(one)}>
                  {one.stage}
                </button>
              </th>
              <td>{one.group}</td>
              <td>{one.kind}</td>
              <td class="number">{one.keys === null || one.keys === undefined ? "–" : `${rows(one.keys)} keys`}</td>
              <td class="number">{bytes(one.bytes)}</td>
              <td class="number">{rows(one.batch)}</td>
            </tr>
          ))}
        </tbody>
      </Table>
      {stage && <Keys key={`${stage.group}.${stage.stage}`} job={job} stage={stage} />}
    </>
  );
}

/** The kinds whose state the engine can read by key. */
const BY_KEY = ["fold", "distinct", "match"];

function Keys({ job, stage }: { job: string; stage: Stage }) {
  const [key, set] = useState("");
  const [found, show] = useState<StateRows | null>(null);
  const { error, attempt } = useAttempt();
  const readable = BY_KEY.includes(stage.kind);
  const look = () => {
    const query = key ? `&key=${encodeURIComponent(key)}` : "";
    const path = `${jobPath(job, "state", `${stage.group}.${stage.stage}`, "rows")}?limit=100${query}`;
    return attempt(async () => show(await get<StateRows>(path)));
  };
  const columns = found?.rows[0] ? Object.keys(found.rows[0]) : [];
  return (
    <section>
      <h2>State of {stage.stage}</h2>
      {!readable && (
        <p class="soft">
          This state cannot be shown by key: Spark keeps that of a {stage.kind} in a form of its own. To see what the stage computes,
          write its results to a journal: <code>.journal("name")</code>
        </p>
      )}
      <form
        class="look"
        onSubmit={(event) => {
          event.preventDefault();
          void look();
        }}
      >
        <label>
          Key <input disabled={!readable} value={key} placeholder="any" onInput={(event) => set(event.currentTarget.value)} />
        </label>
        <button type="submit" class="main" disabled={!readable}>
          Show state
        </button>
      </form>
      {error !== null && <Failure error={error} />}
      {found && found.rows.length === 0 && (
        <Empty title="No state is kept for this key.">
          <p>
            Give the whole key as text; one of several columns as <code>alice,7</code> or as JSON: <code>["alice", 7]</code>
          </p>
        </Empty>
      )}
      {found && found.rows.length > 0 && (
        <>
          <p class="soft">
            {rows(found.rows.length)} of {rows(found.keys)} keys, as of batch {rows(found.batch)}
          </p>
          <div class="scroll" tabIndex={0} role="region" aria-label="state">
            <table class="rows">
              <thead>
                <tr>
                  {columns.map((one) => (
                    <th scope="col" key={one}>
                      {one}
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {found.rows.map((row, at) => (
                  <tr key={at}>
                    {columns.map((one) => (
                      <td key={one}>
                        <Json value={row[one]} />
                      </td>
                    ))}
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </>
      )}
    </section>
  );
}
