// Checkpoints: how far groups are, what has changed since the batch before, and whether all of it is there.
import { useState } from "preact/hooks";
import { type Checkpoint, type Pulse, type VerifiedCheckpoint, jobPath, post } from "../api";
import { bytes, clock, rows } from "../format";
import { Empty, Fact, Failure, useAttempt, useLoaded } from "../parts";
import { ended } from "../health";
import * as live from "../live";
import { jobRoute } from "../route";

export default jobRoute({
  part: "checkpoints",
  title: "Checkpoints",
  order: 45,
  show: ({ pulse }) => <Checkpoints key={pulse.job.name} pulse={pulse} />,
});

function Checkpoints({ pulse }: { pulse: Pulse }) {
  const job = pulse.job.name;
  // Of two versions, the folder of the newer one has another name than its group.
  const groups = new Map(pulse.job.groups.map((one) => [one.name, one.finished]));
  const finished = (one: Checkpoint) => groups.get(one.folder) ?? groups.get(one.group) ?? false;
  const found = useLoaded<Checkpoint[]>(jobPath(job, "checkpoints"), 5);
  if (found.error && !found.value) return <Failure error={found.error} />;
  if (!found.value) return <Empty title="The driver reads its checkpoints …" />;
  if (found.value.length === 0) 
    return (
      <Empty title="No group has a checkpoint yet.">
        <p>
          A group has one after its first batch. Send rows to a source (<a href={jobPath(job)}>Graph</a>), or see the{" "}
          <a href={jobPath(job, "logs")}>log</a> if the job does not run.
        </p>
      </Empty>
    );
  return (
    <>
      {found.value.map((one) => (
        <One key={one.folder} job={job} it={one} finished={finished(one)} />
      ))}
    </>
  );
}

const number = (value: number | null | undefined) => (value === null || value === undefined ? "none" : rows(value));

function watermark(it: Checkpoint): string {
  if (it.watermark_ms === null) return "none";
  const at = it.watermark_ms / 1000;
  return ended(at, live.now.value) ? "ended" : clock(at);
}

function One({ job, it, finished }: { job: string; it: Checkpoint; finished: boolean }) {
  const [verified, show] = useState<VerifiedCheckpoint | null>(null);
  const { error, working, attempt } = useAttempt();
  const verify = () =>
    attempt(async () => show(await post<VerifiedCheckpoint>(jobPath(job, "checkpoints", it.folder, "verify"))));
  return (
    <section aria-label={`checkpoint ${it.folder}`}>
      <h2>
        {it.folder} <span class="soft">checkpoint {it.checkpoint}</span>
      </h2>
      <dl class="facts">
        <Fact name="Committed batch">{number(it.batch)}</Fact>
        <Fact name="Logged batch">{number(it.logged)}</Fact>
        <Fact name="Watermark">{finished ? "ended" : watermark(it)}</Fact>
        <Fact name="Fingerprint">
          <code>{it.fingerprint.slice(0, 12)}</code>
        </Fact>
        {it.generation !== null && it.generation !== undefined && <Fact name="Generation">{number(it.generation)}</Fact>}
        {it.holder && <Fact name="Held by">{it.holder}</Fact>}
      </dl>
      <div class="scroll">
        <table class="small">
          <thead>
            <tr>
              <th scope="col">What</th>
              <th scope="col">Name</th>
              <th scope="col">Where it is</th>
            </tr>
          </thead>
          <tbody>
            {Object.entries(it.inputs).map(([name, positions]) => (
              <tr key={`in ${name}`}>
                <td>reads</td>
                <td>
                  <a href={jobPath(job, "journals", name)}>{name}</a>
                </td>
                <td>up to position {positions.map((one) => rows(one)).join(", ")}</td>
              </tr>
            ))}
            {it.published.map((one) => (
              <tr key={`out ${one.name}`}>
                <td>writes</td>
                <td>{one.name}</td>
                <td>
                  {one.kind}, epoch {number(one.epoch)}
                  {one.decided !== null && one.decided !== undefined && one.decided !== one.epoch && `, decided up to ${number(one.decided)}`}
                </td>
              </tr>
            ))}
            {it.state.map((one) => (
              <tr key={`state ${one.stage} ${one.version}`}>
                <td>keeps</td>
                <td>{one.stage ?? "state"}</td>
                <td>
                  {one.kind}, version {rows(one.version)}, {bytes(one.bytes)} in {rows(one.files)} files
                  {(one.missing ?? []).length > 0 && <span class="bad-text"> {rows(one.missing!.length)} files are missing</span>}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {(it.changes ?? []).length > 0 && (
        <details>
          <summary>Since the batch before</summary>
          <ul>
            {it.changes!.map((one) => (
              <li key={one}>{one}</li>
            ))}
          </ul>
        </details>
      )}
      <div class="actions">
        <button type="button" disabled={working} onClick={verify}>
          {working ? "Verifying …" : "Verify"}
        </button>
      </div>
      {error !== null && <Failure error={error} />}
      {verified && <Verified it={verified} />}
    </section>
  );
}

function Verified({ it }: { it: VerifiedCheckpoint }) {
  const seen = `${rows(it.batches)} batches, ${rows(it.files)} files of state and ${rows(it.outputs)} outputs were compared`;
  return (
    <div role="status">
      {it.faults.length === 0 ? (
        <p>
          <span class="state ok">all is there</span> <span class="soft">{seen}</span>
        </p>
      ) : (
        <>
          <p>
            <span class="state bad">{it.faults.length === 1 ? "1 fault" : `${rows(it.faults.length)} faults`}</span> <span class="soft">{seen}</span>
          </p>
          <ul>
            {it.faults.map((one) => (
              <li key={one}>{one}</li>
            ))}
          </ul>
        </>
      )}
      {(it.unseen ?? []).map((one) => (
        <p class="soft" key={one}>
          Not looked at: {one}
        </p>
      ))}
    </div>
  );
}
