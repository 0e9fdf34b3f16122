// What stages keep per key.
import { useState } from "preact/hooks";
import { type Stage, type StateRows, get, jobPath } from "../api";
import { bytes, rows } from "../format";
import { Empty, Failure, Json, useAttempt, useLoaded } from "../parts";
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
  if (found.value.length === 0) return <Empty title="No stage of this job keeps state." />;
  return (
    <>
      <table class="wide">
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
      </table>
      {stage && <Keys key={`${stage.group}.${stage.stage}`} job={job} stage={stage} />}
    </>
  );
}

function Keys({ job, stage }: { job: string; stage: Stage }) {
  const [key, set] = useState("");
  const [found, show] = useState<StateRows | null>(null);
  const { error, attempt } = useAttempt();
  const look = () => {
    const query = key ? `&key=${encodeURIComponent(key)}` : "";
    const path = `${jobPath(job, "state", `${stage.group}.${stage.stage}`, "rows")}?limit=100${query}`;
    return attempt(async () => show(await get<StateRows>(path)));
  };
  const columns = found?.rows[0] ? Object.keys(found.rows[0]) : [];
  return (
    <section>
      <h2>State of {stage.stage}</h2>
      <form
        class="look"
        onSubmit={(event) => {
          event.preventDefault();
          void look();
        }}
      >
        <label>
          Key <input value={key} placeholder="any" onInput={(event) => set(event.currentTarget.value)} />
        </label>
        <button type="submit" class="main">
          Show state
        </button>
      </form>
      {error !== null && <Failure error={error} />}
      {found && found.rows.length === 0 && <Empty title="No state is kept for this key." />}
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
